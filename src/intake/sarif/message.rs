//! The text of a result: inline, or by id with arguments (§3.11).

use serde_json::Value;

use super::super::IntakeError;
use super::super::json::At;
use super::rules::RuleUse;

/// The message of `result`; empty when there is none.
pub(super) fn of(
    result: &At,
    rule: &RuleUse,
    global: Option<&Value>,
) -> Result<String, IntakeError> {
    let Some(message) = result.get("message") else { return Ok(String::new()) };
    if let Value::String(text) = message.value {
        // Not the standard's shape, but it says what it says.
        return Ok(text.clone());
    }
    let message = message.expect_object()?;
    let inline = message.text("text")?.filter(|t| !t.is_empty());
    let template = match inline.or(message.text("markdown")?) {
        Some(text) => Some(text),
        None => message.text("id")?.and_then(|id| {
            let own = rule.descriptor.and_then(|d| d.get("messageStrings"));
            [own, global].into_iter().flatten().find_map(|strings| multiformat(strings.get(id)?))
        }),
    };
    let arguments = message.items("arguments")?;
    let Some(template) = template else {
        return Ok(arguments.map(|list| words(&list)).unwrap_or_default());
    };
    match arguments {
        None if inline.is_some() => Ok(template.to_owned()),
        arguments => Ok(fill(template, &arguments.unwrap_or_default())),
    }
}

fn multiformat(value: &Value) -> Option<&str> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|t| !t.is_empty());
    text("text").or_else(|| text("markdown")).or_else(|| value.as_str())
}

fn words(arguments: &[At]) -> String {
    arguments.iter().filter_map(|a| a.value.as_str()).collect::<Vec<_>>().join(" ")
}

/// `{0}` is the first argument; `{{` and `}}` are braces. An argument that is not there stays.
fn fill(template: &str, arguments: &[At]) -> String {
    /// Filled messages may grow by repeating long arguments; this is enough for any reader.
    const LIMIT: usize = 64 * 1024;
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if out.len() > LIMIT {
            return out;
        }
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            out.push_str(&rest[..1]);
            rest = after;
            continue;
        }
        let placeholder = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let argument = placeholder.and_then(|(number, after)| {
            Some((arguments.get(number.parse::<usize>().ok()?)?.value, after))
        });
        match argument {
            Some((value, after)) => {
                match value {
                    Value::String(text) => out.push_str(text),
                    other => out.push_str(&other.to_string()),
                }
                rest = after;
            }
            None => {
                out.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled() {
        let value = serde_json::json!({"a": ["x", "{0}"]});
        let root = At::root(&value, "t");
        let arguments = root.items("a").unwrap().unwrap();
        assert_eq!(fill("{0} {{1}} {1} {2} {x} }", &arguments), "x {1} {0} {2} {x} }");
    }
}
