"""What a refusal of the shipped policy and its profiles advises is there, is about that refusal, and can be done."""

from pathlib import Path

import pytest

from broker import policy_profiles
from broker.policy import Policy
from broker.schema import Rule
from tests.support.gate import DEFAULT_POLICY, policy_over, refusal, verdict


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    jail = tmp_path_factory.mktemp("hints") / "jail"
    jail.mkdir()
    (jail / "a").write_text("x\n")
    shipped = DEFAULT_POLICY.read_bytes()
    return policy_over(jail, policy_profiles.with_profiles(shipped, policy_profiles.profile_names()).raw)


ADVICE = {
    "sed -n '/def/p' a": "to find text: grep -n -A 5 TEXT FILE",
    "sed -n '1,5p;10,12p' a": "the one form is: sed -n 'N,Mp' FILE",
    "sed -n '$=' a": "the one form is",
    "sed -n '2q;p' a": "the one form is",
    "sed s/x/y/ a": "the one form is",
    "sed --in-place s/x/y/ a": "only reads",
    "sed -E s/x/y/ a": "grep -nE",
    "tail +f a": "tail -n +N FILE",
    "tail --follow a": "call tail again",
    "find . -fprint b": "use -print",
    "find . -fprintf b x": "use -printf",
    "find . -fls b": "use -ls",
    "find . -execdir cat {} +": "no program is started from find",
    "find . -follow": "the link's target",
    "rg --pre cat x": "no program is started from rg",
    "rg -z x": "no program is started from rg",
    "tr a-z A-Z": "reads no file",
    "tr -d x": "reads no file",
    "sort --output=b a": "the sorted lines are the output",
    "jq 'import \"x\" as y; .' a": "no module is read",
    "xxd a b": "one file",
    "env FOO=1 make": "it sets none and starts nothing",
    "which ./x": "a program's name",
    "date 010100002030": "begins with + is the format",
    "date --set=2020-01-01": "the clock is not set",
    "env -i ls": "name the program itself",
    "md5sum -c a": "print the sums and compare",
    "sha256sum -c a": "print the sums and compare",
    "git --help": "there is no manual",
    "git log --help": "there is no manual",
    "git -c core.pager=x log": "no setting is made for one call",
    "git --git-dir=x log": "-C FOLDER",
    "git --work-tree x status": "use -C FOLDER",
    "git log --output=b": "this entry only reads",
    "git diff --output b": "this entry only reads",
    "git show --ext-diff": "no program is started from git",
    "git diff --ext-diff": "no program is started from git",
    "git gc": "the user runs it",
    "git mv a b": "into .git/hooks",
    "git stash save x": "git stash push -m MESSAGE",
    "git stash -p": "git stash push -- FILE",
    "git stash push --patch": "git stash push -- FILE",
    "git stash create": "git stash push",
    "git rm -f -q --pathspec-from-file=a": "name the files",
    "git config user.name bob": "this only reads",
    "git config user": "git config --get SECTION.NAME",
    "git config --global user.name": "the repository's own settings",
    "git ls-remote": "there is no network",
    "git submodule update": "git would start itself",
    "git clean -fd": "no ready-made entry",
    "git archive HEAD": "git show REVISION:PATH",
    "git bisect start": "it runs what it is given",
    "git difftool": "use git diff",
    "git remote update": "there is no network",
    "git reflog expire": "git reflog show REVISION",
    "git symbolic-ref HEAD refs/x": "would be written",
    "git checkout -": "@{-1}",
    "git switch -": "@{-1}",
    "git add -p": "there is no terminal",
    "git commit -F a": "behind -m",
    "git tag -s v1": "no program for signatures",
    "git branch --edit-description": "there is no terminal",
    "make CC=clang": "no variables",
    "make V=1": "no variables",
    "make test ARGS='-k x'": "no variables",
    "npm install": "there is no network",
    "npm ci": "there is no network",
    "npm t": "npm test",
    "node a.js": "node --test FILE",
    "node -e 1": "no program is taken from the command line",
    "cargo run": "cargo test",
    "cargo test -- --logfile=x": "--nocapture",
    "cargo clippy -- -C x": "-D warnings",
    "pip show ./x": "names of packages",
    "cargo add x": "there is no network",
    "go get x": "there is no network",
    "go mod tidy": "there is no network",
    "go run a": "go test",
    "go fmt ./...": "gofmt -d FILE",
    "gofmt -w a": "-d shows",
    "go test -race ./...": "cgo",
    "go build -o x .": "the package's name",
    "python3 a.py": "no script is run by its name",
    "python3 -c pass": "no program is taken from the command line",
    "python3 -m ruff check": "call ruff itself",
    "python -m http.server": "there is no network",
    "pip install x": "there is no network",
    "pytest --pdb": "there is no terminal",
    "python3 -m pytest --pdb": "there is no terminal",
    "python -m pytest --pdb": "there is no terminal",
    "git checkout -p": "there is no terminal",
    "git restore --patch a": "there is no terminal",
}


@pytest.mark.parametrize("command", ADVICE)
def test_a_refusal_says_what_to_do_and_shows_no_expression(policy: Policy, command: str) -> None:
    reason = refusal(policy, command)
    assert ADVICE[command] in reason
    assert "what matches" not in reason


ELSEWHERE = {
    "git rm a": "init --profile git-write",
    "git add a": "init --profile git-write",
    "git cherry-pick x": "init --profile git-write",
    "git blame --help": "there is no manual",
    "git stash show --output=x": "this entry only reads",
    "git stash pop": "init --profile git-write",
    "git stash push": "init --profile git-write",
    "git stash list": "git reflog show stash",
}


@pytest.mark.parametrize("command", ELSEWHERE)
def test_what_a_profile_allows_is_told_where_only_the_shipped_entries_are(
    tmp_path: Path, command: str
) -> None:
    assert ELSEWHERE[command] in refusal(policy_over(tmp_path, DEFAULT_POLICY.read_bytes()), command)


@pytest.mark.parametrize("script", ["$=", "/def/p", "5="])
def test_a_harmless_operand_is_shown(policy: Policy, script: str) -> None:
    assert f"operand '{script}' (word 2)" in refusal(policy, f"sed -n '{script}' a")


@pytest.mark.parametrize("script", ["/etc/passwd", "/secret/p", "NAME=value", "abcde="])
def test_an_operand_that_may_be_a_path_or_a_secret_is_not(policy: Policy, script: str) -> None:
    assert script not in refusal(policy, f"sed -n '{script}' a")


ADVISED = """
git stash push -- a
git stash push -m x
md5sum a
grep -n -A 5 x a
grep -nE x a
sed -n '1,2p' a
sed -n 5p a
tail -n +3 a
find . -printf x
find . -print0
find . -ls
rg --files
rg -r y -N x a
date +%F
git config --get user.name
git config --list
git branch -r
git branch --list 'x*'
git ls-tree HEAD
git show HEAD:a
git log
git diff
git remote -v
git reflog show HEAD
git reflog show stash
git checkout @{-1}
git switch '@{-1}'
git merge @{-1}
git commit -m x
git add a
git tag -a v1 -m x
npm test
npm run test
npm ls
node --test a
node --check a
cargo test
cargo test adds -- --nocapture --exact --ignored --include-ignored --list --test-threads=1
cargo clippy -- -D warnings -A clippy::all
go build .
go test ./...
go test -cover ./...
gofmt -d a
python3 -m pytest
python3 -m unittest
python3 -m mypy a
python3 -m py_compile a
ruff check a
pip list
pytest --tb=long -l
""".strip().splitlines()


@pytest.mark.parametrize("command", ADVISED)
def test_what_is_advised_is_allowed(policy: Policy, command: str) -> None:
    allowed, reason = verdict(policy, command)
    assert allowed, reason


def _rules(rules: dict[str, Rule]) -> list[Rule]:
    return [each for rule in rules.values() for each in (rule, *_rules(rule.subcommand))]


def test_an_expression_of_operands_always_has_advice(policy: Policy) -> None:
    """A reader is not told what matches an expression."""
    bare = [
        rule.operands
        for rule in _rules(policy.file.rules)
        if any("/" in kind for kind in rule.operands or ()) and "operands" not in rule.instead
    ]
    assert not bare
