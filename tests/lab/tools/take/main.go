// take FILE... -- PROGRAM [ARGUMENT...] becomes the program while it holds an exclusive lock on each file.
//
// The locks end when the program and all that it started have ended, as with a device that a process has open. Somebody
// else's lock is no reason to wait: it says whose it is, and ends with a code of its own.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

const (
	usage = 64 // EX_USAGE
	taken = 75 // EX_TEMPFAIL
)

func main() {
	end := slices.Index(os.Args, "--")
	if end < 2 || end == len(os.Args)-1 {
		fail(usage, "take FILE... -- PROGRAM [ARGUMENT...]")
	}
	for _, file := range os.Args[1:end] {
		lock(file)
	}
	program, err := exec.LookPath(os.Args[end+1])
	if err == nil {
		err = syscall.Exec(program, os.Args[end+1:], os.Environ())
	}
	fail(usage, fmt.Sprintf("cannot become %s: %v", os.Args[end+1], err))
}

func lock(file string) {
	// Not os.Open: its files are closed at an exec.
	descriptor, err := syscall.Open(file, syscall.O_RDWR, 0)
	if err != nil {
		fail(usage, fmt.Sprintf("cannot open %s: %v", file, err))
	}
	if err := syscall.Flock(descriptor, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(file)
		fail(taken, fmt.Sprintf("device %s is taken by %s", file, strings.TrimSpace(string(holder))))
	}
	// For the message above, when another one comes.
	if err := os.WriteFile(file, []byte(os.Getenv("HOLDER")+"\n"), 0o644); err != nil {
		fail(usage, fmt.Sprintf("cannot write %s: %v", file, err))
	}
}

func fail(code int, message string) {
	fmt.Fprintln(os.Stderr, message)
	// In a container this file becomes the message in the pod's status; elsewhere there is none.
	if log, err := os.OpenFile("/dev/termination-log", os.O_WRONLY, 0); err == nil {
		fmt.Fprintln(log, message)
	}
	os.Exit(code)
}
