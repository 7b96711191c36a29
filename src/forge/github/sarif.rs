//! Code-scanning alerts as SARIF 2.1.0: one run per tool, one result per alert.

use serde_json::{Map, Value, json};

/// Builds the document from what the alerts endpoint lists; fields that are missing stay out.
pub(super) fn from_alerts(alerts: &[Value]) -> Value {
    let mut runs: Vec<(String, Map<String, Value>, Vec<Value>)> = Vec::new();
    for alert in alerts {
        let tool = text(alert, "/tool/name").unwrap_or("code scanning").to_owned();
        let rule_id = text(alert, "/rule/id").or_else(|| text(alert, "/rule/name"));
        let rule_id = rule_id.unwrap_or("unknown").to_owned();
        let index = runs.iter().position(|(name, ..)| *name == tool).unwrap_or_else(|| {
            runs.push((tool, Map::new(), Vec::new()));
            runs.len() - 1
        });
        let (_, rules, results) = &mut runs[index];
        rules.entry(rule_id.clone()).or_insert_with(|| rule(alert, &rule_id));
        results.push(result(alert, &rule_id));
    }
    let runs: Vec<Value> = runs
        .into_iter()
        .map(|(name, rules, results)| {
            let rules: Vec<Value> = rules.into_iter().map(|(_, rule)| rule).collect();
            json!({"tool": {"driver": {"name": name, "rules": rules}}, "results": results})
        })
        .collect();
    json!({"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "runs": runs})
}

fn rule(alert: &Value, id: &str) -> Value {
    let mut rule = json!({"id": id});
    let mut set = |name: &str, value: Option<Value>| {
        if let (Some(value), Some(object)) = (value, rule.as_object_mut()) {
            object.insert(name.to_owned(), value);
        }
    };
    set("name", text(alert, "/rule/name").map(Value::from));
    set("shortDescription", text(alert, "/rule/description").map(|t| json!({"text": t})));
    set("fullDescription", text(alert, "/rule/full_description").map(|t| json!({"text": t})));
    set("helpUri", text(alert, "/rule/help_uri").map(Value::from));
    set("help", text(alert, "/rule/help").map(|t| json!({"text": t, "markdown": t})));
    let mut properties = Map::new();
    if let Some(level) = text(alert, "/rule/security_severity_level") {
        // The lower bound of each word in GitHub's own mapping of `security-severity`.
        let score = match level {
            "critical" => "9.0",
            "high" => "7.0",
            "medium" => "4.0",
            _ => "0.1",
        };
        properties.insert("security-severity".to_owned(), score.into());
    }
    if let Some(tags) = alert.pointer("/rule/tags").filter(|tags| tags.is_array()) {
        properties.insert("tags".to_owned(), tags.clone());
    }
    set("properties", (!properties.is_empty()).then_some(Value::Object(properties)));
    rule
}

fn result(alert: &Value, rule_id: &str) -> Value {
    let level = match text(alert, "/rule/severity") {
        Some("error") => "error",
        Some("note" | "none") => "note",
        _ => "warning",
    };
    let message = text(alert, "/most_recent_instance/message/text")
        .or_else(|| text(alert, "/rule/description"))
        .unwrap_or(rule_id);
    let number = alert.get("number").and_then(Value::as_u64).unwrap_or_default();
    let mut result = json!({
        "ruleId": rule_id,
        "level": level,
        "message": {"text": message},
        "partialFingerprints": {"githubAlertNumber": number.to_string()},
    });
    if let Some(object) = result.as_object_mut() {
        if let Some(location) = location(alert) {
            object.insert("locations".to_owned(), json!([location]));
        }
        if let Some(url) = text(alert, "/html_url") {
            object.insert("hostedViewerUri".to_owned(), url.into());
        }
    }
    result
}

fn location(alert: &Value) -> Option<Value> {
    let at = alert.pointer("/most_recent_instance/location")?;
    let path = text(at, "/path")?;
    let mut physical = json!({"artifactLocation": {"uri": path}});
    let mut region = Map::new();
    for (theirs, ours) in [
        ("start_line", "startLine"),
        ("start_column", "startColumn"),
        ("end_line", "endLine"),
        ("end_column", "endColumn"),
    ] {
        if let Some(number) = at.get(theirs).and_then(Value::as_u64).filter(|n| *n > 0) {
            region.insert(ours.to_owned(), number.into());
        }
    }
    if region.contains_key("startLine")
        && let Some(object) = physical.as_object_mut()
    {
        object.insert("region".to_owned(), Value::Object(region));
    }
    Some(json!({"physicalLocation": physical}))
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}
