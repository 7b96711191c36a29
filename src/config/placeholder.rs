//! Placeholders in configured commands: `{prompt-file}`, `{result-file}`, `{paths}`, `{node}`,
//! `{workdir}`.

/// The placeholder-like parts of an argument: `{` lower-case letters and dashes `}`. Anything else
/// in braces (JSON, globs, shell variables) is left alone.
pub(super) fn placeholders(argument: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = argument;
    while let Some(start) = rest.find('{') {
        let (before, after) =
            (rest.get(..start).unwrap_or(""), rest.get(start + 1..).unwrap_or(""));
        let length = after.bytes().take_while(|b| b.is_ascii_lowercase() || *b == b'-').count();
        if length > 0 && after.as_bytes().get(length) == Some(&b'}') && !before.ends_with('$') {
            found.extend(after.get(..length));
        }
        rest = after;
    }
    found
}

/// Fills a command: `{paths}` as a whole argument becomes one argument per path, every other
/// placeholder is replaced inside its argument by the value in `values`. No shell sees the result.
#[must_use]
pub fn fill(argv: &[String], paths: &[String], values: &[(&str, &str)]) -> Vec<String> {
    let mut filled = Vec::with_capacity(argv.len() + paths.len());
    for argument in argv {
        if argument == "{paths}" {
            filled.extend(paths.iter().cloned());
            continue;
        }
        filled.push(fill_one(argument, values));
    }
    filled
}

/// One pass, so that a value which itself looks like a placeholder stays as it is.
fn fill_one(argument: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(argument.len());
    let mut rest = argument;
    while let Some(start) = rest.find('{') {
        let (before, from_brace) = rest.split_at(start);
        text.push_str(before);
        let hit = values.iter().find_map(|(name, value)| {
            let after = from_brace.strip_prefix('{')?.strip_prefix(name)?.strip_prefix('}')?;
            Some((*value, after))
        });
        match hit {
            Some((value, after)) => {
                text.push_str(value);
                rest = after;
            }
            None => {
                text.push('{');
                rest = from_brace.get(1..).unwrap_or("");
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::{fill, placeholders};

    #[test]
    fn only_plain_words_in_braces_are_placeholders() {
        assert_eq!(placeholders("--in={prompt-file} {node}"), ["prompt-file", "node"]);
        assert!(placeholders(r#"{"a":{}} ${home} {A} {*.rs,*.py} {"#).is_empty());
    }

    #[test]
    fn filling_is_one_pass_and_never_splits() {
        let argv = ["fix", "{paths}", "--node={node}", "{other}"].map(str::to_owned);
        let filled = fill(
            &argv,
            &["a b".into(), "{node}".into()],
            &[("node", "{workdir}"), ("workdir", "/w")],
        );
        assert_eq!(filled, ["fix", "a b", "{node}", "--node={workdir}", "{other}"]);
    }
}
