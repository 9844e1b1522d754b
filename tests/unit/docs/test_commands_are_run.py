"""What stands in the pages as a command can be run by tests/cluster/test_docs.py, and is read as it is meant."""

import pytest

from lab.pages import CONSOLE, Step, blocks, says, steps, with_commands

# Programs whose runs are tests, or jobs, of their own.
BESIDE = {"README.md": {"make", "docker", "accelerator-rollout"}}

PAGE = """
<!-- given: kubectl create -f x -->
```console
$ kubectl get arol worker
NAME     READY   AGE
worker   True    3d
$ kubectl delete arol worker   # and back
```
```yaml
kind: A
```
"""


@pytest.mark.parametrize("page", sorted(with_commands()))
def test_commands_stand_where_they_are_run(page: str) -> None:
    for kind, line, lines in blocks(with_commands()[page]):
        if any("kubectl " in one for one in lines):
            assert kind == CONSOLE, f"{page}:{line}: write ```console, and `$ ` before each command"


@pytest.mark.parametrize("page", sorted(with_commands()))
def test_each_command_is_kubectls(page: str) -> None:
    found = steps(with_commands()[page])
    assert found
    allowed = {"kubectl"} | BESIDE.get(page, set())
    assert [s for s in found if s.command.split()[0] not in allowed] == []


def test_commands_what_is_given_and_what_is_shown_are_told_apart() -> None:
    assert steps(PAGE) == [
        Step(2, "kubectl create -f x"),
        Step(4, "kubectl get arol worker", ("NAME     READY   AGE", "worker   True    3d")),
        Step(7, "kubectl delete arol worker   # and back"),
    ]


@pytest.mark.parametrize(
    ("shown", "true"),
    [
        (["NAME AGE", "worker  12d"], True),
        (["worker 12d"], True),
        (["NAME …"], True),
        (["worker 12d", "NAME AGE"], False),
        (["worker"], False),
        (["worker 13"], False),
        (["other 12d"], False),
    ],
)
def test_an_answer_has_what_is_shown_or_not(shown: list[str], true: bool) -> None:
    assert says("NAME     AGE\nworker   5m13s\n", shown) is true
