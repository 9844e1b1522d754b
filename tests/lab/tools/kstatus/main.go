// kstatus tells of each object on its input what kstatus makes of it: a line of JSON in, a line of JSON out.
//
// It is the library that Flux, kpt and Argo CD's cousins compute the status of any object with, so that tests can ask
// the original and not a copy of its rules.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// A status with its history is some tens of kilobytes; etcd takes 1.5 MB at most.
const longest = 4 << 20

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func run() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 64<<10), longest)
	out := bufio.NewWriter(os.Stdout)
	answers := json.NewEncoder(out)
	for number := 1; lines.Scan(); number++ {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(lines.Bytes()); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		found, err := status.Compute(object)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if err := answers.Encode(verdict{string(found.Status), found.Message}); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return out.Flush()
}
