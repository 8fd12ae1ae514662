"""The verdict: lists, kinds of words, paths wherever they hide, rights, and the reasons that are given."""

import os
from pathlib import Path

import pytest

from broker.policy import Policy
from broker.programs import Programs
from broker.refusal import ExecutorError, PolicyDenied
from tests.support.gate import permitted, policy_over, refusal, verdict


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    folder = tmp_path / "jail"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("x")
    (folder / "a.txt").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("x")
    (folder / "link").symlink_to("../outside/secret.txt")
    (folder / "out").symlink_to(outside)
    (folder / "in").symlink_to("a.txt")
    return folder


ONE = """
[commands]
allow = ["ls", "cat", "grep", "echo", "git", "head", "sort", "not-installed-anywhere", "/usr/bin/env"]
deny = ["rm", "/opt/x/tac"]
[rules.grep]
allow_options = ["-rn", "-A, --after-context=integer", "-e=text", "-f, --file=path", "--color=always|never"]
operands = ["text", "path"]
operands_with = { "-e" = ["path"], "-f" = ["path"] }
instead = { "-R" = "use -r" }
[rules.echo]
arguments = "any"
[rules.sort]
deny_options = ["-o", "--output"]
[rules.git]
allow_options = ["-C =folder", "--no-pager"]
arguments_before = ["-c", "a=b"]
environment = { GIT_A = "1", GIT_B = "1" }
read = ["/opt/one"]
limits = { timeout_s = 5 }
[rules.git.subcommand.log]
allow_options = ["--oneline"]
operands = ["revision-or-path"]
arguments_before = ["--no-ext-diff"]
environment = { GIT_B = "2" }
[rules.git.subcommand.show]
allow_options = []
operands = ["revision"]
[rules.git.subcommand.commit]
allow_options = ["-m=text"]
writes = true
temporary = true
may_run = ["cat", "rm", "not-installed-either"]
read = ["/opt/two"]
limits = { timeout_s = 9.5, stdout_bytes = 7 }
"""


@pytest.fixture
def policy(jail: Path) -> Policy:
    return policy_over(jail, ONE)


def test_a_program_on_no_list_is_denied_and_the_reason_names_what_is_allowed(policy: Policy) -> None:
    assert "'tail' is not on the allow list ([commands] allow); allowed: ls cat grep" in refusal(
        policy, "tail a.txt"
    )


def test_a_name_on_both_lists_is_denied(jail: Path) -> None:
    policy = policy_over(jail, "[commands]\nallow = ['ls']\ndeny = ['ls']")
    assert "deny list" in refusal(policy, "ls")
    assert policy.programs == ()


def test_the_basename_of_a_denied_path_and_a_path_to_a_denied_name_are_denied(policy: Policy) -> None:
    assert "deny list" in refusal(policy, "tac a.txt")
    assert "deny list" in refusal(policy, "/bin/rm a.txt")


@pytest.mark.parametrize(
    "name", ["/bin/ls", "./ls", "../ls", "src/ls", "/proc/self/root/bin/cat", "//usr/bin/env"]
)
def test_a_path_is_no_name_unless_that_very_path_is_listed(policy: Policy, name: str) -> None:
    assert "not by a path" in refusal(policy, name)


def test_a_listed_path_may_be_called(policy: Policy) -> None:
    assert permitted(policy, "/usr/bin/env").argv[0] == "/usr/bin/env"


def test_names_are_case_sensitive(policy: Policy) -> None:
    refusal(policy, "LS")


def test_a_missing_program_is_an_executor_error_not_a_denial(policy: Policy) -> None:
    with pytest.raises(ExecutorError, match="not installed"):
        permitted(policy, "not-installed-anywhere x")


OUTSIDE = [
    "/etc/passwd", "../outside/secret.txt", "out/secret.txt", "link", "src/../../outside", "--file=/etc/passwd",
    "-f/etc/passwd", "-C..", "-xf../outside/secret.txt", "-flink", "'@/etc/passwd'", "@link", "a=b/../../x", "a=link",
    "if=/etc/passwd", "':/x'", "HEAD:/etc/x", "file:///etc/passwd", "x:y:/etc", "a,/etc/passwd", "'~/x'", "'~root/x'",
    "--x='~/y'", "no/../../outside", "./../outside/secret.txt", "'/./etc/./passwd'", "/proc/self/cwd/a.txt", "'a\n'",
]  # fmt: skip


@pytest.mark.parametrize("word", OUTSIDE)
def test_without_a_rule_no_part_of_any_word_may_lead_out_of_the_jail(policy: Policy, word: str) -> None:
    reason = refusal(policy, f"cat {word}")
    assert "word 1" in reason
    assert "passwd" not in reason
    assert "outside/" not in reason


INSIDE = [
    "a.txt", "src/app.py", "./a.txt", "src/../a.txt", "in", "new.txt", "src/new/deep.txt", "-n", "--color=auto", "-fa.txt",
    "src//app.py", "-", "--", "''", "a:b", "x@y", "'%2e%2e/outside'", "'$HOME/x'", "a..b", "...", "-",
]  # fmt: skip


@pytest.mark.parametrize("word", INSIDE)
def test_without_a_rule_every_word_that_stays_inside_passes(policy: Policy, word: str) -> None:
    assert permitted(policy, f"cat {word}").reason == "allowed by [commands] allow"


def test_absolute_paths_inside_the_jail_are_fine_but_siblings_with_that_prefix_are_not(
    policy: Policy, jail: Path
) -> None:
    permitted(policy, f"cat {jail}/a.txt {jail} {jail}/.")
    assert "absolute" in refusal(policy, f"cat {jail}_private/x")


def test_paths_are_relative_to_the_working_directory(policy: Policy) -> None:
    permitted(policy, "cat ../a.txt app.py", cwd="src")
    assert "word 1" in refusal(policy, "cat ../../a.txt", cwd="src")


def test_a_word_with_too_many_parts_is_refused_not_cut(policy: Policy) -> None:
    assert "more than 64 parts" in refusal(policy, "cat " + "a:" * 100 + "/etc/passwd")
    assert "more than 64 parts" in refusal(policy, "cat -" + "a" * 100 + "/etc/passwd")


def test_what_the_rule_calls_text_is_not_checked_as_a_path(policy: Policy) -> None:
    permitted(policy, "grep /etc/passwd a.txt")
    permitted(policy, "grep -e ../x -e '~' a.txt")
    permitted(policy, "echo /etc/passwd ../../x")


@pytest.mark.parametrize(
    "command",
    [
        "grep x /etc/passwd", "grep -f /etc/passwd x", "grep -rf../outside/secret.txt .", "grep --file=link x",
        "grep --file ../x y", "grep -e x ../y", "grep -e x link", "grep x -- ../y", "grep -r x out", "grep x @../outside",
        "grep x '~'", "grep x file:///etc/passwd", "grep -f =/etc/passwd x", "grep -f=/etc/passwd x",
    ],
)  # fmt: skip
def test_what_the_rule_calls_a_path_must_stay_inside(policy: Policy, command: str) -> None:
    assert "[rules.grep]" in refusal(policy, command)


def test_an_option_that_stands_for_the_first_operand_makes_all_operands_paths(policy: Policy) -> None:
    permitted(policy, "grep ../x a.txt")
    assert "word 3" in refusal(policy, "grep -e x ../x a.txt")


@pytest.mark.parametrize("name", ["ssh-keygen", "ssh-add", "pass", "keytool"])
def test_a_program_is_named_whatever_its_name_speaks_of(policy: Policy, name: str) -> None:
    assert refusal(policy, f"{name} x").startswith(f"'{name}' is not on the allow list")


@pytest.mark.parametrize("name", ["Secret-Word", "secret7", "passwordisnevershownhere"])
def test_what_stands_in_a_programs_place_and_may_be_a_secret_is_not_repeated(
    policy: Policy, name: str
) -> None:
    assert name not in refusal(policy, f"{name} x")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("b c.md", "'b c.md'"),
        ("b'\u00e9.md", '"b\'\u00e9.md"'),
        ("b-my-secret-key.md", "'b-my-secret-key.md'"),
        ("b" * 120 + ".md", f"'\u2026{'b' * 97}.md'"),
    ],
)
def test_of_the_matches_of_a_pattern_the_one_that_is_refused_is_named(
    policy: Policy, jail: Path, name: str, shown: str
) -> None:
    for other in ("a.md", "c.md"):
        (jail / other).write_text("x")
    (jail / name).symlink_to("/etc/passwd")
    reason = refusal(policy, "cat *.md")
    assert reason.startswith(f"cat: {shown}, which the pattern matches: ")
    assert "passwd" not in reason
    assert refusal(policy, "cat [ac].md link").startswith("cat: word 3: ")


def test_globs_are_expanded_before_the_check_and_what_they_match_is_checked(policy: Policy) -> None:
    assert permitted(policy, "cat a*").argv == ("cat", "a.txt")
    refusal(policy, "cat l*")
    assert permitted(policy, "cat src/*.py").argv == ("cat", "src/app.py")


def test_a_revision_has_no_leading_minus_and_may_name_paths_of_the_repository(policy: Policy) -> None:
    for revision in (
        "HEAD~1",
        "a..b",
        "HEAD:../x",
        "':/fix ../x'",
        "HEAD:/etc/x",
        "'HEAD@{1 day ago}'",
        "/x",
    ):
        permitted(policy, f"git show {revision}")
    assert "option -x is not allowed" in refusal(policy, "git show -x")
    assert "[rules.git.subcommand.show]" in refusal(policy, "git show -- ../x")
    for command in ("git log /etc/passwd", "git log ../x", "git log link", "git log -- ../x"):
        assert "[rules.git.subcommand.log]" in refusal(policy, command)
    permitted(policy, "git log HEAD~1..HEAD -- src -x")


def test_a_subcommand_has_its_own_rule_and_options_in_front_are_the_parents(policy: Policy) -> None:
    granted = permitted(policy, "git --no-pager log --oneline HEAD")
    assert granted.argv == ("git", "-c", "a=b", "--no-pager", "log", "--no-ext-diff", "--oneline", "HEAD")
    assert granted.reason == "allowed by [rules.git.subcommand.log]"
    assert granted.environment == {"GIT_A": "1", "GIT_B": "2"}
    assert "--oneline" in refusal(policy, "git --oneline log")
    assert "--no-pager" in refusal(policy, "git log --no-pager")


@pytest.mark.parametrize("command", ["git push", "git", "git --no-pager", "git st", "git log-evil", "git lo"])
def test_other_subcommands_are_refused_with_the_list_of_the_allowed(policy: Policy, command: str) -> None:
    assert "allowed: log, show, commit" in refusal(policy, command)


def test_a_folder_option_moves_the_place_that_later_paths_are_relative_to(policy: Policy) -> None:
    permitted(policy, "git -C src log ../a.txt app.py")
    assert "word 4" in refusal(policy, "git -C src log ../../a.txt")
    assert "the value of -C" in refusal(policy, "git -C out log")
    assert "the value of -C" in refusal(policy, "git -C .. log")
    assert "does not exist" in refusal(policy, "git -C nope log")
    permitted(policy, "git -C src -C .. log a.txt")
    refusal(policy, "git -C src -C ../.. log")
    permitted(policy, "git -C .. log a.txt", cwd="src")
    refusal(policy, "git -C .. log ../a.txt", cwd="src")


def test_the_least_rights_are_the_default(policy: Policy) -> None:
    profile = permitted(policy, "ls").profile
    assert (profile.writes, profile.network, profile.may_run, profile.may_run_own) == (
        False,
        False,
        (),
        False,
    )
    assert (profile.read, profile.temporary) == ((), False)


def test_rights_and_limits_of_a_subcommand_come_on_top_of_its_programs(policy: Policy) -> None:
    log, commit = permitted(policy, "git log"), permitted(policy, "git commit -m x")
    assert (log.profile.writes, log.profile.read, log.limits.timeout_s) == (False, ("/opt/one",), 5)
    assert (commit.profile.writes, commit.profile.temporary) == (True, True)
    assert commit.profile.read == ("/opt/one", "/opt/two")
    assert (commit.limits.timeout_s, commit.limits.stdout_bytes) == (9.5, 7)
    assert permitted(policy, "ls").limits == policy.file.limits


def test_denied_and_missing_programs_may_not_be_started_either(policy: Policy) -> None:
    assert [program.name for program in permitted(policy, "git commit -m x").profile.may_run] == ["cat"]


@pytest.mark.parametrize(
    "command",
    [
        "sort -o x a.txt", "sort -ox a.txt", "sort -ro x a.txt", "sort -rox a.txt", "sort --output x a.txt",
        "sort --output=x a.txt", "sort --out=x a.txt", "sort --o x a.txt", "sort a.txt -o x", "sort -k1,1o x a.txt",
        "sort -k -- -o x", "sort -k -- --output=x",
    ],
)  # fmt: skip
def test_a_denied_option_is_found_however_it_is_written(policy: Policy, command: str) -> None:
    assert "[rules.sort] deny_options" in refusal(policy, command)


def test_beside_denied_options_all_others_pass(policy: Policy) -> None:
    for command in ("sort -rn a.txt", "sort --reverse a.txt", "sort -- -o", "sort -k 2"):
        permitted(policy, command)


def with_rule(jail: Path, program: str, rule: str) -> Policy:
    """Return a policy that allows one program under one rule."""
    return policy_over(jail, f"[commands]\nallow = ['{program}']\n[rules.{program}]\n{rule}")


def test_deny_wins_over_allow_for_options_too(jail: Path) -> None:
    policy = with_rule(jail, "ls", "allow_options = ['-l', '-a, --all']\ndeny_options = ['-a']")
    permitted(policy, "ls -l")
    for command in ("ls -a", "ls -la", "ls --all"):
        refusal(policy, command)


def test_single_dash_programs_have_their_denied_options_found_with_either_dash(jail: Path) -> None:
    policy = with_rule(jail, "find", "option_style = 'single-dash'\ndeny_options = ['-exec']")
    permitted(policy, "find . -name x -executable")
    for command in ("find . -exec x", "find . --exec x", "find -- -exec x", "find . -exec=x"):
        refusal(policy, command)


def test_required_options_are_required(jail: Path) -> None:
    policy = with_rule(jail, "ls", "allow_options = ['-n, --num', '-l']\nrequire_options = ['--num']")
    permitted(policy, "ls -ln")
    assert "only with --num" in refusal(policy, "ls -l")


def test_arguments_any_checks_nothing_and_says_which_rule_allowed_it(policy: Policy) -> None:
    assert permitted(policy, "echo -n --x=/etc ../..").reason == "allowed by [rules.echo]"


def test_a_reason_repeats_no_secret_no_long_value_and_no_path_outside(policy: Policy) -> None:
    token = "ghx" + "_9aZ" * 9
    for command in (
        f"grep --token={token} x", f"grep --color={token} x", f"git {token}", f"cat /etc/{token}", f"grep -z{token} x",
        f"{token} x", f"git show -{token}", f"grep -A {token} x", f"sort --outp={token} a", f"git -C {token} log",
    ):  # fmt: skip
        reason = refusal(policy, command)
        assert token not in reason
        assert token[4:20] not in reason
        assert len(reason) <= 300


def test_long_lists_of_what_is_allowed_are_cut_at_300_characters(jail: Path) -> None:
    names = "".join(f"[rules.git.subcommand.number-{number}]\n" for number in range(30))
    policy = policy_over(jail, f"[commands]\nallow = ['git']\n{names}")
    reason = refusal(policy, "git x")
    assert len(reason) <= 300
    assert reason.endswith("…")


def test_advice_is_given_in_place_of_the_list(policy: Policy) -> None:
    assert refusal(policy, "grep -nR x .").endswith("; use -r")


@pytest.mark.parametrize(
    ("rule", "command", "said"),
    [
        ("operands = ['/[0-9]+p/']", "ls a", "operand 'a' (word 1) is not allowed ([rules.ls]); HINT"),
        ("operands = ['path&!/x/']", "ls x", "operand 'x' (word 1) is not allowed ([rules.ls]); HINT"),
        (
            "operands = ['path', 'none']",
            "ls a b",
            "operand 'b' (word 2) is not allowed here ([rules.ls]); HINT",
        ),
        ("operands = ['integer']", "ls a", "is not allowed ([rules.ls]); expected an integer"),
        (
            "allow_options = []\noperands = ['revision']",
            "ls -",
            "expected a revision that does not begin with - (the branch before is @{-1})",
        ),
        (
            "allow_options = ['-n=/[0-9]/']",
            "ls -n a",
            "the value of -n is not allowed ([rules.ls]); expected what matches /[0-9]/",
        ),
        ("allow_options = ['-n=text&!/x/']", "ls -n x", "expected what has no match of /x/"),
    ],
)
def test_the_advice_on_operands_is_given_where_no_words_say_what_is_expected(
    jail: Path, rule: str, command: str, said: str
) -> None:
    assert refusal(with_rule(jail, "ls", f"{rule}\ninstead = {{ operands = 'HINT' }}"), command).endswith(
        said
    )


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("build/calc", "'build/calc'"),
        ("1,5p;10,12p", "'1,5p;10,12p'"),
        ("[", "'['"),
        ("CC=clang", "'CC=…'"),
        ("ARGS=-k x", "'ARGS=…'"),
        ("=x", "a word of 2 characters"),
        ("é", "a word of one character"),
        ("/etc/shadow", "a word of 11 characters"),
        ("a/../../x", "a word of 9 characters"),
        ("user:x@host", "a word of 11 characters"),
        ("API_TOKEN=x", "a word of 11 characters"),
        ("dGVzdA==", "a word of 8 characters"),
        ("the-password", "a word of 12 characters"),
    ],
)
def test_a_refused_word_is_shown_where_it_is_harmless(jail: Path, word: str, told: str) -> None:
    policy = with_rule(jail, "ls", "operands = ['/ /']")
    assert f"ls: operand {told} (word 1)" in refusal(policy, f"ls '{word}'")


def test_the_digest_is_of_the_files_bytes(policy: Policy) -> None:
    assert len(policy.digest) == 64
    assert policy.digest != policy_over(Path(policy.jail.root), ONE + "\n").digest


def test_a_denied_argument_is_denied_even_where_the_program_is_missing(policy: Policy) -> None:
    with pytest.raises(PolicyDenied):
        permitted(policy, "not-installed-anywhere /etc/x")


def test_an_empty_policy_denies_everything(jail: Path) -> None:
    assert not verdict(policy_over(jail, ""), "ls")[0]


def test_no_word_may_begin_with_what_reads_further_words_from_a_file(jail: Path) -> None:
    policy = with_rule(jail, "ls", "allow_options = ['-I=text']\nno_word_begins_with = '@'")
    permitted(policy, "ls ./@a -I x@")
    for command in ("ls @a", "ls -I @a", "ls -- @a"):
        assert "./@" in refusal(policy, command)


def test_deny_wins_over_may_run_even_for_a_program_that_was_looked_up(jail: Path) -> None:
    policy = policy_over(
        jail, "[commands]\nallow = ['ls']\ndeny = ['rm']\n[rules.ls]\nmay_run = ['rm', 'cat']"
    )
    policy.lookup = Programs(policy.file.environment.path, policy.jail, {"ls", "rm", "cat"})
    assert [program.name for program in permitted(policy, "ls").profile.may_run] == ["cat"]


KINDS_WITH_EXPRESSIONS = r"""
[commands]
allow = ["cat", "head", "git", "sort", "tac", "wc"]
[rules.cat]
operands = ['path&/.*\.(md|txt)/']
[rules.head]
allow_options = ['--lines=path&!/\.env/', "-q"]
operands = ['path&!/^(.*\/)?\.env$/']
[rules.sort]
operands = ['path&!/^sub\//']
[rules.tac]
operands = ['path&/\.\/.*\.md|\/.*\.md|@.*\.md/']
[rules.git]
allow_options = ["-C =folder"]
[rules.git.subcommand.log]
allow_options = []
operands = ['revision-or-path&!/\.env/']
[rules.git.subcommand.show]
operands = ['revision&!/\.env/']
[rules.wc]
operands = ['path&/[a-z]+\/?/']
"""


@pytest.fixture
def links(tmp_path: Path) -> Policy:
    """A jail in which somebody planted links with harmless names."""
    folder = tmp_path / "links"
    (folder / "sub/deep").mkdir(parents=True)
    (folder / "docs").mkdir()
    for name in (".env", "a.md", "sub/.env", "sub/b.md", "+x"):
        (folder / name).write_text("x")
    for name, target in {
        "notes.md": ".env",
        "plain": ".env",
        "chain.md": "plain",
        "sub/up.md": "../.env",
        "sub/top.md": str(folder / ".env"),
        "later.md": "missing.env",
        "good.md": "sub/b.md",
        "d": "sub",
        "far": str(folder / "sub"),
        "sub/later.md": ".env.new",
        "docs/DRAFT": "../sub",
    }.items():
        (folder / name).symlink_to(target)
    (folder / "undecodable").symlink_to(b"\xff.env")
    (folder / os.fsdecode(b"\xff.env")).write_text("x")
    return policy_over(folder, KINDS_WITH_EXPRESSIONS)


@pytest.mark.parametrize(
    ("command", "cwd"),
    [
        ("cat notes.md", None),
        ("cat chain.md", None),
        ("cat up.md", "sub"),
        ("cat top.md", "sub"),
        ("cat {root}/notes.md", None),
        ("cat d/up.md", None),
        ("cat a.md sub/../notes.md", None),
        ("cat *.md", None),
        ("cat later.md", None),
        ("cat d/later.md", None),
        ("head plain", None),
        ("head d/.env", None),
        ("head up.md", "sub"),
        ("head sub/../.env", None),
        ("head {root}/plain", None),
        ("head --lines=plain", None),
        ("head --lines plain", None),
        ("head --lines=undecodable a.md", None),
        ("head -- plain", None),
        ("sort d/b.md", None),
        ("sort b.md", "sub"),
        ("sort d/new.md", None),
        ("tac ./notes.md", None),
        ("tac {root}/notes.md", None),
        ("tac @notes.md", None),
        ("git log plain", None),
        ("git log -- plain", None),
        ("git log -- .env", None),
        ("git show -- .env", None),
        ("git -C sub log up.md", None),
        ("wc far", "docs"),
        ("wc draft/", "docs"),
    ],
)
def test_an_expression_holds_for_the_place_that_a_path_ends_at_too(
    links: Policy, command: str, cwd: str | None
) -> None:
    (Path(links.jail.root) / "docs/far").symlink_to("DRAFT")
    (Path(links.jail.root) / "docs/draft").symlink_to("../+x")
    command = command.format(root=links.jail.root)
    assert "not allowed" in refusal(links, command, cwd) or "link to nothing" in refusal(links, command, cwd)


@pytest.mark.parametrize(
    ("command", "cwd"),
    [
        ("cat a.md good.md sub/b.md", None),
        ("cat ../a.md", "sub"),
        ("cat new.md", None),
        ("cat new/new.md", None),
        ("cat {root}/a.md d/b.md far/b.md", None),
        ("cat sub/../a.md", None),
        ("head a.md sub . sub/deep", None),
        ("head --lines a.md a.md", None),
        ("sort a.md", None),
        ("tac ./a.md {root}/good.md @a.md ./good.md", None),
        ("git log main..topic a.md", None),
        ("git -C sub log b.md -- b.md", None),
        ("git show -- sub/b.md", None),
        ("wc sub d far docs/ d/ new", None),
    ],
)
def test_a_path_whose_end_matches_as_well_is_allowed(links: Policy, command: str, cwd: str | None) -> None:
    allowed, reason = verdict(links, command.format(root=links.jail.root), cwd)
    assert allowed, reason


KINDS = {"cat": r"path&!/^(.*\/)?\.env$/", "head": "none", "tail": "integer"}
BEHIND_DASHES = f"[commands]\nallow = {list(KINDS)}\n" + "".join(
    f"[rules.{name}]\noperands = ['{kind}']\n" for name, kind in KINDS.items()
)


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("cat -n note", True),
        ("cat -- note", True),
        ("cat -- -l", False),
        ("cat -- .env", False),
        ("cat -n -- -l", False),
        ("head -n", True),
        ("head -- -l", False),
        ("tail -- 5", True),
        ("tail -- -l", False),
    ],
)
def test_an_operand_behind_dashes_keeps_its_kind_whatever_it_begins_with(
    tmp_path: Path, command: str, allowed: bool
) -> None:
    for name in (".env", "note"):
        (tmp_path / name).touch()
    (tmp_path / "-l").symlink_to(".env")
    assert verdict(policy_over(tmp_path, BEHIND_DASHES), command)[0] == allowed
