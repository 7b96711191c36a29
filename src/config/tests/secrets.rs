//! Secrets are refused and never repeated.

use super::refused;

#[test]
fn an_inline_key_by_its_form() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    key-env: nvapi-0123456789abcdef\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:6:14: pools[0].key-env holds what looks like a secret
       |
     6 |     key-env: (hidden)
       |              ^^^^^^^^
      do: put the value into an environment variable (a repository secret) and name the variable here; then revoke this key, since it was written to a file
    "#);
}

#[test]
fn a_key_without_a_known_form() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    key-env: 0c2d9e8f7a6b5c4d3e2f1a0b\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:6:14: pools[0].key-env looks like a key, not like the name of a variable
      do: put the key into an environment variable (a repository secret) and write its name here; then revoke this key
    "#);
}

#[test]
fn a_key_env_with_a_dollar() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    key-env: $NIM_KEY\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:6:14: pools[0].key-env is no name of an environment variable
      do: use letters, digits and `_`, for example `NVIDIA_API_KEY`; no `$`, never the value
    "#);
}

#[test]
fn a_key_in_an_argument() {
    let text = concat!(
        "version: 1\n",
        "dispatch: {command-workers: true}\n",
        "pools:\n",
        "  - {provider: worker-command, command: [fix, --key, sk-abcdefghijkl]}\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:4:54: pools[0].command[2] holds what looks like a secret
       |
     4 |   - {provider: worker-command, command: [fix, --key, (hidden)]}
       |                                                      ^^^^^^^^
      do: put the value into an environment variable (a repository secret) and name the variable here; then revoke this key, since it was written to a file
    "#);
}

#[test]
fn an_authorization_header() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: http://h/v1\n",
        "    headers:\n",
        "      Authorization: hunter2hunter2\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:7:22: pools[0].headers.Authorization holds what looks like a secret
       |
     7 |       Authorization: (hidden)
       |                      ^^^^^^^^
      do: put the value into an environment variable (a repository secret) and name the variable here; then revoke this key, since it was written to a file
    "#);
}

#[test]
fn a_password_in_a_url() {
    let text = concat!(
        "version: 1\n",
        "pools:\n",
        "  - provider: openai-compatible\n",
        "    model: m\n",
        "    base-url: https://me:hunter2@h/v1\n",
    );
    insta::assert_snapshot!(refused(text), @r#"
    o.yml:5:15: pools[0].base-url holds what looks like a secret
       |
     5 |     base-url: https://(hidden)@h/v1
       |               ^^^^^^^^^^^^^^^^^^^^^
      do: put the value into an environment variable (a repository secret) and name the variable here; then revoke this key, since it was written to a file
    "#);
}
