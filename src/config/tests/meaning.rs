//! Errors of meaning: all of them, each at its place.

use super::refused;

#[test]
fn an_empty_pool_list() {
    let text = concat!("version: 1\n", "pools: []\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:2:8: no pool is declared
       |
     2 | pools: []
       |        ^
      do: add at least one; `overhaul schema` shows every setting
    "#);
}

#[test]
fn a_later_version() {
    let text = concat!("version: 2\n", "pools: [{provider: host}]\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:1:10: version 2 is not known
       |
     1 | version: 2
       |          ^
      do: write `version: 1`, or use a newer overhaul
    "#);
}

#[test]
fn no_model_and_no_url() {
    let text = concat!("version: 1\n", "pools:\n", "  - provider: openai-compatible\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:5: a pool of `openai-compatible` needs a `base-url`
       |
     3 |   - provider: openai-compatible
       |     ^^^^^^^^
      do: write the endpoint up to its version, for example `https://integrate.api.nvidia.com/v1`

    o.yml:3:5: a pool of `openai-compatible` needs a `model`
       |
     3 |   - provider: openai-compatible
       |     ^^^^^^^^
      do: name the model as the backend knows it
    "#);
}

#[test]
fn bad_urls() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - {id: p0, provider: codex, model: m, base-url: 'localhost:8000/v1'}\n",
        "  - {id: p1, provider: codex, model: m, base-url: 'ftp://h/v1'}\n",
        "  - {id: p2, provider: codex, model: m, base-url: '/v1'}\n",
        "  - {id: p3, provider: codex, model: m, base-url: 'https://h/v1/chat/completions'}\n",
        "  - {id: p4, provider: codex, model: m, base-url: 'https://h/v1?x=1'}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:51: pools[0].base-url must begin with http:// or https://
       |
     3 |   - {id: p0, provider: codex, model: m, base-url: 'localhost:8000/v1'}
       |                                                   ^^^^^^^^^^^^^^^^^^^
      do: write the endpoint up to its version, for example `http://localhost:8000/v1`

    o.yml:4:51: pools[1].base-url must begin with http:// or https://
       |
     4 |   - {id: p1, provider: codex, model: m, base-url: 'ftp://h/v1'}
       |                                                   ^^^^^^^^^^^^
      do: write the endpoint up to its version, for example `http://localhost:8000/v1`

    o.yml:5:51: pools[2].base-url is no URL: relative URL without a base
       |
     5 |   - {id: p2, provider: codex, model: m, base-url: '/v1'}
       |                                                   ^^^^^
      do: write the endpoint up to its version, for example `http://localhost:8000/v1`

    o.yml:6:51: pools[3].base-url names an operation, not the endpoint
       |
     6 |   - {id: p3, provider: codex, model: m, base-url: 'https://h/v1/chat/completions'}
       |                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      do: drop `/chat/completions`

    o.yml:7:51: pools[4].base-url has a query or a fragment
       |
     7 |   - {id: p4, provider: codex, model: m, base-url: 'https://h/v1?x=1'}
       |                                                   ^^^^^^^^^^^^^^^^^^
      do: paths are appended to it; write it without `?` and `#`, and keys in `key-env`
    "#);
}

#[test]
fn duplicate_derived_ids() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - {provider: codex, model: m}\n",
        "  - {provider: codex, model: m, tier: deep}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:5: pools[1] has the derived id `codex/m`, as pools[0] has
       |
     4 |   - {provider: codex, model: m, tier: deep}
       |     ^^^^^^^^^
      do: give one of them an `id` or an `account` of its own
    "#);
}

#[test]
fn duplicate_explicit_ids() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - {provider: codex, model: m, id: a}\n",
        "  - {provider: codex, model: n, id: a}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:37: pools[1] has the id `a`, as pools[0] has
       |
     4 |   - {provider: codex, model: n, id: a}
       |                                     ^
      do: give one of them an `id` or an `account` of its own
    "#);
}

#[test]
fn a_command_pool_without_the_policy() {
    let text =
        concat!("version: 1\n", "pools:\n", "  - provider: worker-command\n", "    command: []\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:15: a pool of `worker-command` runs a command, and command workers are off
       |
     3 |   - provider: worker-command
       |               ^^^^^^^^^^^^^^
      do: set `dispatch.command-workers: true` to allow it, or remove the pool

    o.yml:4:14: a pool of `worker-command` needs a `command`
       |
     4 |     command: []
       |              ^
      do: write the program and its arguments: `[fix-tool, "{prompt-file}"]`
    "#);
}

#[test]
fn placeholders() {
    let text = concat!(
        "version: 1\n",
        "dispatch: {command-workers: true}\n",
        "pools:\n",
        "  - {provider: subprocess-template, command: [x, '{promt}', '--p={paths}']}\n",
        "findings: [{file: a, recheck: [ruff, '{node}']}]\n",
        "verify: {commands: [{name: t, argv: [t, '{paths}']}]}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:50: unknown placeholder `{promt}`
       |
     4 |   - {provider: subprocess-template, command: [x, '{promt}', '--p={paths}']}
       |                                                  ^^^^^^^
      do: the placeholders here are `{prompt-file}`, `{result-file}`, `{paths}`, `{node}`, `{workdir}`, `{base-url}`

    o.yml:4:61: `{paths}` must be an argument of its own
       |
     4 |   - {provider: subprocess-template, command: [x, '{promt}', '--p={paths}']}
       |                                                             ^^^^^^^^^^^
      do: it becomes one argument per path

    o.yml:5:38: unknown placeholder `{node}`
       |
     5 | findings: [{file: a, recheck: [ruff, '{node}']}]
       |                                      ^^^^^^
      do: the placeholders here are `{paths}`

    o.yml:6:41: unknown placeholder `{paths}`
       |
     6 | verify: {commands: [{name: t, argv: [t, '{paths}']}]}
       |                                         ^^^^^^^
      do: no placeholders are filled in here
    "#);
}

#[test]
fn a_shell_line_as_argv() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "verify: {commands: [{name: t, argv: [cargo test --all]}, {name: t, argv: []}]}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:38: verify.commands[0].argv is one text with spaces; no shell splits it
       |
     3 | verify: {commands: [{name: t, argv: [cargo test --all]}, {name: t, argv: []}]}
       |                                      ^^^^^
      do: write each argument as its own element: `[cargo, test, --all]`

    o.yml:3:65: the command name `t` is used twice
       |
     3 | verify: {commands: [{name: t, argv: [cargo test --all]}, {name: t, argv: []}]}
       |                                                                 ^
      do: give each command a name of its own

    o.yml:3:74: verify.commands[1].argv is empty
       |
     3 | verify: {commands: [{name: t, argv: [cargo test --all]}, {name: t, argv: []}]}
       |                                                                          ^
      do: write the program and its arguments: `[cargo, test]`
    "#);
}

#[test]
fn zero_and_negative_numbers() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    limits: {requests-per-minute: 0}\n",
        "    cost-per-mtok: -1\n",
        "    context-tokens: 0\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:6:35: pools[0].limits.requests-per-minute must be at least 1
       |
     6 |     limits: {requests-per-minute: 0}
       |                                   ^
      do: leave it out when the limit is unknown; use `exclude` to turn the pool off

    o.yml:7:20: pools[0].cost-per-mtok must be a number of US dollars
       |
     7 |     cost-per-mtok: -1
       |                    ^^
      do: write 0 for free, or leave it out when unknown

    o.yml:8:21: pools[0].context-tokens must be at least 1
       |
     8 |     context-tokens: 0
       |                     ^
      do: leave it out when it is unknown
    "#);
}

#[test]
fn a_window_smaller_than_its_output() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    context-tokens: 4096\n",
        "    output-tokens: 8192\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:7:20: 8192 output tokens leave no room in a context of 4096 tokens
       |
     7 |     output-tokens: 8192
       |                    ^^^^
      do: the context window holds input and output; raise `context-tokens` or lower `output-tokens`
    "#);
}

#[test]
fn the_runners_token_and_anothers_key() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - {provider: codex, model: m, env: [GITHUB_TOKEN, B_KEY, 'A B']}\n",
        "  - {provider: codex, model: n, key-env: B_KEY}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:39: `GITHUB_TOKEN` belongs to the job; no worker may see it
       |
     3 |   - {provider: codex, model: m, env: [GITHUB_TOKEN, B_KEY, 'A B']}
       |                                       ^^^^^^^^^^^^
      do: remove it, or give the worker a variable of its own

    o.yml:3:53: `B_KEY` is another pool's key
       |
     3 |   - {provider: codex, model: m, env: [GITHUB_TOKEN, B_KEY, 'A B']}
       |                                                     ^^^^^
      do: remove it; a worker sees only its own key

    o.yml:3:60: pools[0].env[2] is no name of an environment variable
      do: use letters, digits and `_`, for example `NVIDIA_API_KEY`; no `$`, never the value
    "#);
}

#[test]
fn a_lease_shorter_than_an_attempt() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "dispatch:\n",
        "  attempt-timeout: 1h\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:20: a lease of 45m ends before an attempt of 1h can
       |
     4 |   attempt-timeout: 1h
       |                    ^^
      do: make `lease` at least as long as `attempt-timeout`
    "#);
}

#[test]
fn a_budget_of_nothing() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "dispatch: {budget: {usd: 0, tokens: 0}, max-attempts: {contract: 0}}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:26: dispatch.budget.usd must be a positive number of US dollars
       |
     3 | dispatch: {budget: {usd: 0, tokens: 0}, max-attempts: {contract: 0}}
       |                          ^
      do: write an amount such as 5.00, or leave it out for no ceiling

    o.yml:3:37: dispatch.budget.tokens must be at least 1
       |
     3 | dispatch: {budget: {usd: 0, tokens: 0}, max-attempts: {contract: 0}}
       |                                     ^
      do: leave it out for no ceiling

    o.yml:3:66: dispatch.max-attempts.contract must be at least 1
       |
     3 | dispatch: {budget: {usd: 0, tokens: 0}, max-attempts: {contract: 0}}
       |                                                                  ^
      do: a node needs at least one attempt
    "#);
}

#[test]
fn bad_globs() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "policy:\n",
        "  protected: ['a[', '/etc/**', '../x', '']\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:15: policy.protected[0] is no valid glob: unclosed character class; missing ']'
       |
     4 |   protected: ['a[', '/etc/**', '../x', '']
       |               ^^^^
      do: mend the pattern; `[` and `{` must be closed, or escaped as `[[]`

    o.yml:4:21: policy.protected[1] leaves the repository
       |
     4 |   protected: ['a[', '/etc/**', '../x', '']
       |                     ^^^^^^^^^
      do: globs are relative to the repository's root, without a leading slash or `..`

    o.yml:4:32: policy.protected[2] leaves the repository
       |
     4 |   protected: ['a[', '/etc/**', '../x', '']
       |                                ^^^^^^
      do: globs are relative to the repository's root, without a leading slash or `..`

    o.yml:4:40: policy.protected[3] is empty
       |
     4 |   protected: ['a[', '/etc/**', '../x', '']
       |                                        ^^
      do: write a glob such as `docs/**`, or remove it
    "#);
}

#[test]
fn bad_exclusions() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "exclude: [opanai, 'https://h/v1']\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:11: exclude[0] is no exclusion
       |
     3 | exclude: [opanai, 'https://h/v1']
       |           ^^^^^^
      do: write a provider (`openai-compatible`, `codex`, `opencode`, `claude-worker`, `agy`, `subprocess-template`, `worker-command`, `host`), `provider:model`, or an endpoint `host[:port]` without a scheme

    o.yml:3:19: exclude[1] is no exclusion
       |
     3 | exclude: [opanai, 'https://h/v1']
       |                   ^^^^^^^^^^^^^^
      do: write a provider (`openai-compatible`, `codex`, `opencode`, `claude-worker`, `agy`, `subprocess-template`, `worker-command`, `host`), `provider:model`, or an endpoint `host[:port]` without a scheme
    "#);
}

#[test]
fn a_source_of_two_kinds_and_one_of_none() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "findings:\n",
        "  - {file: ../a, intent: x}\n",
        "  - {format: sarif}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:5: findings[0] names 2 sources
       |
     4 |   - {file: ../a, intent: x}
       |     ^^^^^
      do: name exactly one of `file`, `intent`, `code-scanning` and `issues`; start a new list element for another

    o.yml:4:12: findings[0].file: '../a' leaves the repository
       |
     4 |   - {file: ../a, intent: x}
       |            ^^^^
      do: write a path relative to the repository's root

    o.yml:5:5: findings[1] has settings of a file but no `file`
       |
     5 |   - {format: sarif}
       |     ^^^^^^^
      do: add `file:`, or remove `format` and `source-root`

    o.yml:5:5: findings[1] names 0 sources
       |
     5 |   - {format: sarif}
       |     ^^^^^^^
      do: name exactly one of `file`, `intent`, `code-scanning` and `issues`; start a new list element for another
    "#);
}

#[test]
fn a_directory_store_without_its_folder() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "state: directory\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:8: a directory store needs a folder
       |
     3 | state: directory
       |        ^^^^^^^^^
      do: write `state: {store: directory, path: FOLDER}`
    "#);
}

#[test]
fn a_path_for_a_branch_store() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "base: s\n",
        "state: {branch: s, path: x}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:17: the state branch can't be the base branch
       |
     4 | state: {branch: s, path: x}
       |                 ^
      do: give the state a branch of its own, such as `overhaul/state`

    o.yml:4:26: only a directory store has a `path`
       |
     4 | state: {branch: s, path: x}
       |                          ^
      do: remove it, or set `store: directory`
    "#);
}

#[test]
fn a_bad_prefix_and_branch() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "commands: {prefix: overhaul}\n",
        "pull-requests: {branch-prefix: 'a b', draft: true, auto-merge: true}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:20: commands.prefix must be one word after a slash
       |
     3 | commands: {prefix: overhaul}
       |                    ^^^^^^^^
      do: write for example `/overhaul`

    o.yml:4:32: pull-requests.branch-prefix is no valid branch name
       |
     4 | pull-requests: {branch-prefix: 'a b', draft: true, auto-merge: true}
       |                                ^^
      do: write a short branch name such as `main` or `overhaul/state`

    o.yml:4:64: drafts can't be merged automatically
       |
     4 | pull-requests: {branch-prefix: 'a b', draft: true, auto-merge: true}
       |                                                                ^^^^
      do: set only one of `draft` and `auto-merge`
    "#);
}

#[test]
fn settings_that_an_agent_would_ignore() {
    for (pool, what) in [
        (
            "provider: agy, model: m, base-url: 'https://h/v1'",
            "`agy` signs in by itself and takes no `base-url`",
        ),
        ("provider: agy, model: m, key-env: K", "`agy` signs in by itself and takes no `key-env`"),
        (
            "provider: opencode, model: m, key-env: K",
            "a pool of `opencode` with a key needs a `base-url`",
        ),
        ("provider: codex, model: m, headers: {x-team: a}", "so nothing can add headers"),
        ("provider: claude-worker, model: m, tools: json", "`claude-worker` brings its own tools"),
        ("provider: codex, model: m, version: ''", "pools[0].version must be a non-empty line"),
        ("provider: codex, model: m, command: [codex, '{paths}']", "unknown placeholder `{paths}`"),
        (
            "provider: openai-compatible, model: m, base-url: 'https://h/v1', args: [x]",
            "`args` is for agents",
        ),
        ("provider: host, version: '1'", "`version` is for agents"),
        (
            "provider: openai-compatible, model: m, base-url: 'https://h/v1', command: [x]",
            "runs no `command`",
        ),
    ] {
        let told = refused(&format!("version: 1\npools: [{{{pool}}}]\n"));
        assert!(told.contains(what), "{pool}: {told}");
    }
}
