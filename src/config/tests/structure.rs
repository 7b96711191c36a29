//! Errors of form: YAML, keys, kinds of values.

use super::refused;

#[test]
fn an_empty_file() {
    let text = "";
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:1:1: `version` is missing
      do: add `version: 1` as the first line
    "#);
}

#[test]
fn no_pools() {
    let text = "version: 1\n";
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:1:1: `pools` is missing
       |
     1 | version: 1
       | ^^^^^^^
      do: add at least one pool: `pools: [{provider: openai-compatible, model: NAME, base-url: URL, key-env: VARIABLE}]`
    "#);
}

#[test]
fn a_worded_version() {
    let text = concat!("version: one\n", "pools: [{provider: host}]\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:1:10: version must be a whole number, 0 or more, not "one"
       |
     1 | version: one
       |          ^^^
      do: write a whole number, 0 or more
    "#);
}

#[test]
fn a_list_at_the_root() {
    let text = "- a\n";
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:1:1: the file must be a mapping, not a list
       |
     1 | - a
       | ^
      do: write a mapping
    "#);
}

#[test]
fn a_tab() {
    let text = concat!("version: 1\n", "pools:\n", "\t- provider: host\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:1: found character that cannot start any token
       |
     3 |  - provider: host
       | ^
      do: indent with spaces, never with tabs
    "#);
}

#[test]
fn an_open_quote() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "base: \"main\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:1: found unexpected end of stream at line 4 column 1, while scanning a quoted scalar
      do: mend the YAML at this place; quote texts that hold `: `, `#`, `*`, `&` or `{`
    "#);
}

#[test]
fn two_unknown_sections() {
    let text =
        concat!("version: 1\n", "pools: [{provider: host}]\n", "polls: []\n", "stat: branch\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:1: unknown key `polls`
       |
     3 | polls: []
       | ^^^^^
      do: did you mean `pools`?

    o.yml:4:1: unknown key `stat`
       |
     4 | stat: branch
       | ^^^^
      do: did you mean `state`?
    "#);
}

#[test]
fn an_underscore_and_a_synonym() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: host\n",
        "    base_url: http://h/v1\n",
        "  - provider: host\n",
        "    rpm: 4\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:5: unknown key `base_url` in pools[0]
       |
     4 |     base_url: http://h/v1
       |     ^^^^^^^^
      do: did you mean `base-url`?

    o.yml:6:5: unknown key `rpm` in pools[1]
       |
     6 |     rpm: 4
       |     ^^^
      do: did you mean `limits.requests-per-minute`?
    "#);
}

#[test]
fn an_unknown_key_with_no_neighbour() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "commands: {colour: red}\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:12: unknown key `colour` in commands
       |
     3 | commands: {colour: red}
       |            ^^^^^^
      do: the keys here are `prefix`, `permission`, `fuse`
    "#);
}

#[test]
fn an_inline_key_by_its_name() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    api-key: hunter2hunter2\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:6:5: unknown key `api-key` in pools[0]
       |
     6 |     api-key: (hidden)
       |     ^^^^^^^
      do: name the environment variable that holds the key: `key-env: NAME`; the key itself never belongs in this file
    "#);
}

#[test]
fn an_unknown_provider() {
    let text = concat!("version: 1\n", "pools: [{provider: openia-compatible, model: m}]\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:2:20: `openia-compatible` is not known in pools[0].provider
       |
     2 | pools: [{provider: openia-compatible, model: m}]
       |                    ^^^^^^^^^^^^^^^^^
      do: did you mean `openai-compatible`?
    "#);
}

#[test]
fn a_missing_provider() {
    let text = concat!("version: 1\n", "pools:\n", "  - model: m\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:5: `provider` is missing in pools[0]
       |
     3 |   - model: m
       |     ^^^^^
      do: add `provider:`, for example `openai-compatible` or `codex`
    "#);
}

#[test]
fn a_repeated_key() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "base: a\n", "base: b\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:1: the key `base` is repeated
       |
     4 | base: b
       | ^^^^
      do: keep one of the two
    "#);
}

#[test]
fn a_negative_limit() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    limits: {concurrent: -4}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:6:26: pools[0].limits.concurrent must be a whole number, 0 or more, not `-4`
       |
     6 |     limits: {concurrent: -4}
       |                          ^^
      do: write a whole number, 0 or more
    "#);
}

#[test]
fn a_dial_out_of_range() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "dispatch: {dial: 1.5}\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:18: dispatch.dial must be `cost`, `speed`, or a number from 0 (cheapest first) to 1 (fastest first), not `1.5`
       |
     3 | dispatch: {dial: 1.5}
       |                  ^^^
      do: write `cost`, `speed`, or a number from 0 (cheapest first) to 1 (fastest first)
    "#);
}

#[test]
fn a_dial_in_words() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "dispatch: {dial: fast}\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:18: dispatch.dial must be `cost`, `speed`, or a number from 0 (cheapest first) to 1 (fastest first), not "fast"
       |
     3 | dispatch: {dial: fast}
       |                  ^^^^
      do: write `cost`, `speed`, or a number from 0 (cheapest first) to 1 (fastest first)
    "#);
}

#[test]
fn bad_durations() {
    let text = concat!(
        "version: 1\n",
        "pools: [{provider: host}]\n",
        "dispatch: {lease: 5, time-budget: soon, attempt-timeout: 0s}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:19: dispatch.lease must be a duration such as 90s, 15m, 6h or 1h30m, not `5`
       |
     3 | dispatch: {lease: 5, time-budget: soon, attempt-timeout: 0s}
       |                   ^
      do: write a duration such as 90s, 15m, 6h or 1h30m
    "#);
}

#[test]
fn an_unknown_store() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "state: cloud\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:8: `cloud` is not known in state
       |
     3 | state: cloud
       |        ^^^^^
      do: use one of `branch`, `artifact`, `directory`
    "#);
}

#[test]
fn an_unknown_alias() {
    let text = concat!("version: 1\n", "pools: *nope\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:2:8: an alias (`*name`) has no anchor (`&name`) before it
       |
     2 | pools: *nope
       |        ^^^^^
      do: define it first, or quote the text
    "#);
}

#[test]
fn two_documents() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "---\n", "version: 1\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:1:1: the file holds more than one YAML document
       |
     1 | version: 1
       | ^^^^^^^
      do: keep one document: remove the `---` inside
    "#);
}

#[test]
fn a_tag() {
    let text = concat!("version: 1\n", "pools: !x []\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:2:8: pools: YAML tags (`!name`) mean nothing here
       |
     2 | pools: !x []
       |        ^^
      do: remove the tag, or quote the text when it starts with `!`
    "#);
}

#[test]
fn a_merge_key() {
    let text = concat!("version: 1\n", "pools: [{provider: host}]\n", "<<: {a: 1}\n",);
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:3:1: unknown key `<<`
       |
     3 | <<: {a: 1}
       | ^^
      do: merge keys are not supported; repeat the settings
    "#);
}
