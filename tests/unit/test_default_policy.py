"""The shipped policy, program by program: what a reader needs passes, what writes, starts, follows or waits does not."""

import pytest

from broker.policy import Policy
from broker.policy_file import grants_writes
from tests.support.gate import DEFAULT_POLICY, permitted, policy_over, refusal


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    jail = tmp_path_factory.mktemp("default") / "jail"
    (jail / "src").mkdir(parents=True)
    (jail.parent / "outside").mkdir()
    (jail / "out").symlink_to("../outside")
    for name in ("a", "b", "src/x.py"):
        (jail / name).write_text("x\n")
    return policy_over(jail, DEFAULT_POLICY.read_bytes())


DAILY = """
ls
ls -la src
ls -lSr --color=never
cat -n a
head -100 a
head -n 20 a
head -n20 a b
tail -5 a
tail -n +3 a
nl -ba a
sed -n 10,20p a
sed -n '10,20p' a
sed -n 5p a
grep -rn TODO src
grep -n x a -A 10 -B 5
grep -nC3 x a
grep -5 x a
grep -rE 'a|b' . --include='*.py'
grep -e -x -e y a
grep -- -x a
rg -n x src
rg --files -g '*.py'
rg -A5 -tpy x
rg -uu --hidden x .
find . -name '*.py' -not -path './build/*'
find src -maxdepth 2 -type f -newer a
find . ( -name a -o -name b ) -print
find . ! -name a -mtime -10 -size +10k
find -type d
tree -L 2 -I 'x|y' src
tree -fi
wc -l a b
sort -t, -k2,2n a
sort -u a
uniq -c a
cut -d, -f1 a
cut -d: -f 1,3- a
diff -u a b
diff -ru src src
cmp -s a b
comm -12 a b
file -bi a
stat -c %s a
du -sh src
du -d1 .
df -h .
realpath a
readlink -f a
basename /x/y .y
dirname ../x
pwd
which git
date -u +%F
date -d '2 days ago' +%s
echo hi
printf '%s\\n' x
seq 3
id -un
uname -a
whoami
env
printenv PATH
jq -r .x a
jq .include a
jq 'has("import") or .["include"]' a
jq '{import: 1} | .import' a
jq '.a # the first' a
jq --arg a b '.[$a]' a
od -A x -t x1z a
xxd -l 16 a
strings -n 8 a
sha256sum a
md5sum a
diff -r src src
strings -a a
date -d '@0'
jq -n 1
git status --short
git status -sb
git log --oneline -5
git log -n 3 a
git log --oneline --graph --all -- src
git log -p -1 HEAD~1..HEAD
git log -S x --since='2 weeks ago' --author me
git log --format='%h %s' -3
git diff
git diff HEAD~1 -- a
git diff --stat main...feature
git diff @~1
git log '@{u}..@'
git rev-parse --abbrev-ref '@{u}'
git diff --cached --name-only
git show HEAD
git show HEAD:src/x.py
git show --stat HEAD~1
git blame -L 1,5 a
git branch -a
git branch --list 'f*'
git branch --contains HEAD
git branch -vv
git tag -l 'v*'
git tag --sort=-creatordate
git ls-files -o --exclude-standard
git rev-parse --abbrev-ref HEAD
git rev-parse --short HEAD
git grep -n x HEAD~1 -- src
git describe --tags --always --dirty
git -C src status
git --no-pager log -1
git remote -v
git reflog show stash
git stash show
git config --get user.name
git --version
""".strip().splitlines()


@pytest.mark.parametrize("command", DAILY)
def test_what_a_reader_types_every_day_passes(policy: Policy, command: str) -> None:
    assert permitted(policy, command).reason.startswith("allowed by [rules.")


STARTS_A_PROGRAM = """
find . -exec cat {} +
find . -execdir cat {} +
find . -ok cat {} +
find . -okdir cat {} +
rg --pre cat x
rg x --pre=cat
rg --hostname-bin=cat x
rg -z x
rg -iz x
rg --search-zip x
sort --compress-program=cat a
sort --compress-prog cat a
file -z a
file --uncompress a
diff -l a b
diff --paginate a b
sed 1e a
sed -n 1e a
sed -n '1,2p;e' a
sed -n 1,2p -e 1e a
sed -nf a b
env cat a
env -S cat
env A=b cat
git -c core.pager=cat log
git -ccore.pager=cat log
git --config-env=core.pager=A log
git --exec-path=. log
git -p log
git --paginate log
git log --ext-diff
git log --textconv
git show --textconv HEAD:a
git cat-file --textconv HEAD:a
git cat-file --filters HEAD:a
git grep -O x
git grep -Ocat x
git grep --open-files-in-pager=cat x
git log --show-signature
git difftool
git bisect run cat
git rebase -x cat HEAD
git submodule foreach cat
git st
git help log
git stash list
git tag --column
git describe --broken
git status --ignore-submodules=none
git log --help
jq 'import "x" as y; .' a
jq 'include "x"; .' a
jq '	 import"x"as y;y::f' a
jq '@ import "x" as y; .' a
jq '# text@import "x" as y; .' a
jq '#@include "x"; .' a
jq 'module {}; import "x" as y; .' a
jq 'module{"a":1};include"x";.' a
jq '"x" | modulemeta' a
jq -n 'include "x"; .' a
jq --arg a b 'import "x" as y; .' a
jq -L . . a
jq -f a b
jq -nf a
jq --from-file a b
jq -L. -f a
""".strip().splitlines()

WRITES = """
find . -delete
find . -fprint b
find . -fprint0 b
find . -fprintf b x
find . -fls b
sort -o b a
sort -ob a
sort -ro b a
sort a -o b
sort --output=b a
sort --outp b a
sort -T src a
uniq a b
uniq -c -- a b
tree -o b
tree -ao b
tree -Io x b
tree -R -L 1
xxd a b
xxd a -p
xxd -r a b
shuf a -o b
shuf -ob a
sed -i s/x/y/ a
sed -ni 1,2p a
sed --in-place 1d a
sed -n w a
sed -n '1,2w b' a
file -C -m a
file -Cm a
base64 -o b a
date -s 2020-01-01
date --set=2020-01-01
date --se 2020-01-01
date 010100002030
git diff --output=b
git diff --output b
git diff --outp=b
git log --output=b
git show --output b HEAD
git stash
git stash push
git stash pop
git branch new
git branch -d x
git branch -f x HEAD
git branch -v new
git branch -u origin/main
git branch --merged HEAD new
git tag new
git tag -d v1
git tag -a v1
git checkout a
git commit -m x
git add a
git config user.name x
git config --unset user.name
git config --add a.b c
git remote add x y
git remote set-url x y
git symbolic-ref HEAD refs/x
git reflog expire --all
git reflog delete HEAD
git worktree add x
git update-ref x y
git apply a
git archive -o b HEAD
git hash-object -w a
tee a
cp a b
rm a
mv a b
touch a
ln -s a b
dd if=a of=b
""".strip().splitlines()

LEADS_OUT = """
cat ../outside
cat out/x
head -n 3 /etc/passwd
tail -n1 -- ../x
grep -f ../x a
grep -rf../x .
grep -if ../x a
grep --file=/etc/x a
grep --exclude-from=../x y a
grep x a /etc/hosts
grep -R x .
grep --dereference-recursive x .
grep -r x out
rg -f ../x .
rg -f=../x .
rg --ignore-file ../x a
rg -L x
rg --follow x
rg x ../
ls -L
ls -lLR
ls --dereference
ls ..
find ..
find out/
find -L .
find . -follow
find . -newer ../x
find . -newermm ../x
find . -samefile /etc/passwd
find -files0-from a
tree -l
tree -al
tree --fromfile a
tree --infofile ../x
tree /
du -L .
du -X ../x .
du --files0-from=a
wc --files0-from=a
wc --files0-from a
sort --files0-from=a
sort --files0=a
sort --random-source=/etc/passwd -R a
sort -m /etc/passwd
diff a /etc/passwd
diff -X ../x src src
diff --from-file=../x a
diff --to-file /etc/passwd a
cmp a /etc/passwd
comm a ../x
file -f a
file -m ../x a
file --files-from a
date -r ../x
date -f a
date --file=a
stat -L out
realpath out
readlink -f out
realpath --relative-to=/ a
strings @a
strings -n 3 @a
nm @a
size @a
jq . ../x
jq --rawfile x /etc/passwd .
jq --slurpfile x ../x .
jq -f ../x a
jq . a --args ../x
od -j 1 ../x
md5sum -c ../x
md5sum -c a
sha256sum --check a
cksum -c a
b2sum --check a
nm a
size a
strings -d a
strings --data a
tree --gitignore
rg --debug x
date -d 'TZ="/x" now'
date --date='TZ="../x" now'
find . -newermt 'TZ="../x" now'
find . -newerBt 'TZ=":/x" now'
git blame --ignore-revs-file=a a
git grep -f a x
git grep -fa x
git ls-files -o -X a
git ls-files -o --exclude-per-directory=src/../../x
uptime /etc/passwd
which ../x
which /bin/sh
git -C .. log
git -C out log
git -C src log ../../x
git --git-dir=../x log
git --git-dir ../x log
git --work-tree=.. status
git diff --no-index a ../x
git diff --no-index /dev/null /etc/passwd
git diff /etc/passwd a
git diff -O../x
git log -- ../x
git blame --contents ../x a
git blame --ignore-revs-file=../x a
git grep -f ../x a
git grep --no-index x ../
git ls-files -X ../x -o
git ls-files --exclude-from=../x -o
git config -f ../x --list
git config --global --list
git config --system --list
""".strip().splitlines()

OPTIONS_AS_VALUES = """
git log --encoding -S --output=a HEAD
git log -S --output=a
git log --author --output=a
git show --decorate-refs -S --output=a HEAD
git diff --diff-merges -G --ext-diff
git shortlog --committer --output=a HEAD
git rev-list -L --output=a HEAD
git reflog --encoding -G --output=a
git stash show -S HEAD -G --output=a
grep -e --include=a b
""".strip().splitlines()


@pytest.mark.parametrize("command", OPTIONS_AS_VALUES)
def test_what_looks_like_an_option_is_no_value_in_a_word_of_its_own(policy: Policy, command: str) -> None:
    assert "looks like an option" in refusal(policy, command)


WAITS_OR_WASTES = """
tail -f a
tail -F a
tail -5f a
tail --follow a
tail --follow=name a
tail -fn 1 a
sort -S 100G a
sort --buffer-size=100G a
sort --parallel=9999 a
column -c 99999999 a
git log --stdin
git fetch
git pull
git clone x
git ls-remote
git push
""".strip().splitlines()


@pytest.mark.parametrize("command", [*STARTS_A_PROGRAM, *WRITES, *LEADS_OUT, *WAITS_OR_WASTES])
def test_what_starts_programs_writes_leads_out_or_never_ends_is_refused(policy: Policy, command: str) -> None:
    refusal(policy, command.replace("@", "\n") if command.startswith("jq") else command)


def test_no_program_of_it_may_write_start_another_or_use_the_network(policy: Policy) -> None:
    assert not grants_writes(policy.file)
    for name in policy.programs:
        rule = policy.entry(name).rule
        assert (rule.network, rule.may_run, rule.may_run_own) == (False, (), False)
        assert (rule.temporary, rule.read) == (False, ("/proc",) if name == "df" else ())


def test_every_program_of_it_has_a_rule(policy: Policy) -> None:
    assert set(policy.file.rules) == set(policy.file.commands.allow)


def test_git_never_reads_anybodys_configuration_but_the_repositorys_and_that_is_overruled(
    policy: Policy,
) -> None:
    granted = permitted(policy, "git log")
    assert granted.environment["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert granted.environment["GIT_CONFIG_NOSYSTEM"] == "1"
    front = granted.argv[: granted.argv.index("log")]
    for setting in ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never"):
        assert setting in front
    assert granted.argv[granted.argv.index("log") + 1 :] == ("--no-ext-diff", "--no-textconv")


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("diff -r src src", ["--no-dereference"]),
        ("rg x", ["--no-config", "--no-ignore-messages"]),
        ("strings a", ["--all"]),
        ("git config --list", ["--no-includes"]),
        ("git blame a", ["--no-textconv"]),
    ],
)
def test_what_makes_a_program_follow_what_lies_in_the_jail_is_turned_off_in_front(
    policy: Policy, command: str, first: list[str]
) -> None:
    argv = permitted(policy, command).argv
    rest = command.split()[2:] if command.startswith("git") else command.split()[1:]
    assert list(argv)[-len(first) - len(rest) :] == first + rest


def test_git_takes_no_file_of_names_or_patterns_from_the_settings_of_a_repository(policy: Policy) -> None:
    front = permitted(policy, "git log").argv
    for setting in (
        "core.excludesFile",
        "core.attributesFile",
        "mailmap.file",
        "diff.orderFile",
        "commit.template",
    ):
        assert f"{setting}=/dev/null" in front


def test_it_can_be_read_in_ten_minutes() -> None:
    tokens = DEFAULT_POLICY.read_text().partition("# ---- tests of this file")[0].split()
    words = [token for token in tokens if any(character.isalpha() for character in token)]
    assert len(words) < 3_000
