//! GitHub's published OpenAPI description as a contract: what we send and what the rig answers is
//! checked against it, and objects are shaped by it.
//!
//! `tests/data/github-openapi-subset.json` is cut from npm's `@octokit/openapi` 23.0.2 (MIT,
//! `generated/api.github.com.json`) to the endpoints in use, without texts and examples.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

const SUBSET: &str = include_str!("../../data/github-openapi-subset.json");

/// The description and what was compiled of it.
pub struct Contract {
    document: Value,
    validators: Mutex<HashMap<String, std::sync::Arc<Validator>>>,
    shapes: Mutex<HashMap<String, Value>>,
}

/// One operation and the values of the parameters in its path.
#[derive(Debug, Clone)]
pub struct Operation {
    pub template: String,
    pub method: String,
    pub parameters: HashMap<String, String>,
}

impl Contract {
    pub fn get() -> &'static Self {
        static CONTRACT: OnceLock<Contract> = OnceLock::new();
        CONTRACT.get_or_init(|| {
            let mut document: Value = serde_json::from_str(SUBSET).expect("the description parses");
            to_json_schema(&mut document);
            Self { document, validators: Mutex::default(), shapes: Mutex::default() }
        })
    }

    /// The operation at a path (without query, still encoded).
    pub fn operation(&self, method: &str, path: &str) -> Option<Operation> {
        let method = method.to_lowercase();
        let paths = self.document["paths"].as_object()?;
        let mut found: Vec<Operation> = paths
            .iter()
            .filter(|(_, item)| item.get(&method).is_some())
            .filter_map(|(template, _)| {
                let parameters = matches(template, path)?;
                Some(Operation { template: template.clone(), method: method.clone(), parameters })
            })
            .collect();
        // `issues/comments` before `issues/{issue_number}`.
        found.sort_by_key(|operation| operation.parameters.len());
        found.into_iter().next()
    }

    /// What is wrong with a request.
    pub fn check_request(
        &self,
        operation: &Operation,
        query: &[(String, String)],
        body: Option<&Value>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let declared = self.parameters(operation);
        for (name, value) in query {
            let Some(parameter) =
                declared.iter().find(|p| p["in"] == "query" && p["name"] == *name)
            else {
                wrong.push(format!("query parameter {name} does not exist"));
                continue;
            };
            let schema = self.resolve(&parameter["schema"]);
            let typed = match schema["type"].as_str() {
                Some("integer") => value.parse::<i64>().map_or(json!(value), Value::from),
                Some("boolean") => value.parse::<bool>().map_or(json!(value), Value::from),
                _ => json!(value),
            };
            let key = format!("{} {} ?{name}", operation.method, operation.template);
            wrong.extend(self.errors(&key, schema, &typed));
        }
        let content = &self.node(operation)["requestBody"]["content"]["application/json"];
        match (content.get("schema"), body) {
            (Some(schema), Some(body)) => {
                let key = format!("{} {} body", operation.method, operation.template);
                wrong.extend(self.errors(&key, schema, body));
                // GitHub ignores unknown properties; ours would be a typo.
                if let Some(known) = schema["properties"].as_object() {
                    let unknown = body.as_object().into_iter().flat_map(Map::keys);
                    let unknown = unknown.filter(|name| !known.contains_key(*name));
                    wrong.extend(unknown.map(|name| format!("property {name} does not exist")));
                }
            }
            (None, Some(_)) => wrong.push("a body where none is described".to_owned()),
            (Some(_), None) if self.node(operation)["requestBody"]["required"] == json!(true) => {
                wrong.push("a body is required".to_owned());
            }
            _ => {}
        }
        wrong
    }

    /// What is wrong with an answer. Errors that are not described for the operation pass: every
    /// endpoint can answer 401, 403, 404, 429 and 5xx.
    pub fn check_answer(&self, operation: &Operation, status: u16, body: &Value) -> Vec<String> {
        let responses = &self.node(operation)["responses"];
        let Some(response) = responses.get(status.to_string()) else {
            return if status >= 400 || status == 304 {
                Vec::new()
            } else {
                vec![format!("status {status} is not described")]
            };
        };
        let response = self.resolve(response);
        let key = format!("{} {} {status}", operation.method, operation.template);
        match response["content"]["application/json"].get("schema") {
            Some(schema) => self.errors(&key, schema, body),
            None if body.is_null() => Vec::new(),
            None => vec![format!("status {status} has no body")],
        }
    }

    /// The smallest object that a component's schema accepts, with `own` laid over it.
    pub fn shape(&self, component: &str, own: Value) -> Value {
        let mut shapes = self.shapes.lock().expect("no poison");
        let shape = shapes.entry(component.to_owned()).or_insert_with(|| {
            let schema = &self.document["components"]["schemas"][component];
            assert!(!schema.is_null(), "no schema {component}");
            self.skeleton(schema, 0)
        });
        let mut object = shape.clone();
        lay_over(&mut object, own);
        object
    }

    fn skeleton(&self, schema: &Value, depth: usize) -> Value {
        if depth > 12 {
            return Value::Null;
        }
        let schema = self.resolve(schema);
        let next = |schema: &Value| self.skeleton(schema, depth + 1);
        if let Some(all) = schema["allOf"].as_array() {
            let mut whole = json!({});
            all.iter().for_each(|part| lay_over(&mut whole, next(part)));
            return whole;
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(any) = schema[key].as_array() {
                let nullable = any.iter().any(|option| option["type"] == "null");
                return if nullable { Value::Null } else { next(&any[0]) };
            }
        }
        if schema["type"].as_array().is_some_and(|types| types.contains(&json!("null"))) {
            return Value::Null;
        }
        if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
            return first.clone();
        }
        match schema["type"].as_str() {
            Some("string") => match schema["format"].as_str() {
                Some("date-time") => json!("2026-01-01T00:00:00Z"),
                Some("uri") => json!("https://github.test/"),
                _ => json!("x"),
            },
            Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or(1)),
            Some("boolean") => json!(false),
            Some("array") => json!([]),
            _ => {
                let required = schema["required"].as_array().into_iter().flatten();
                let fields = required.filter_map(Value::as_str);
                let fields =
                    fields.map(|name| (name.to_owned(), next(&schema["properties"][name])));
                Value::Object(fields.collect())
            }
        }
    }

    fn errors(&self, key: &str, schema: &Value, instance: &Value) -> Vec<String> {
        let mut validators = self.validators.lock().expect("no poison");
        let validator = validators.entry(key.to_owned()).or_insert_with(|| {
            let root = json!({
                "$ref": "#/x", "x": schema, "components": self.document["components"],
            });
            let built = jsonschema::draft202012::options().build(&root);
            std::sync::Arc::new(built.expect("the schema compiles"))
        });
        let shown = |error: jsonschema::ValidationError<'_>| {
            let text: String = error.to_string().chars().take(300).collect();
            format!("{key}: {text} at {}", error.instance_path())
        };
        validator.iter_errors(instance).map(shown).take(5).collect()
    }

    fn node(&self, operation: &Operation) -> &Value {
        &self.document["paths"][&operation.template][&operation.method]
    }

    fn parameters(&self, operation: &Operation) -> Vec<&Value> {
        let shared = &self.document["paths"][&operation.template]["parameters"];
        let own = &self.node(operation)["parameters"];
        [shared, own]
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|parameter| self.resolve(parameter))
            .collect()
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self
                .document
                .pointer(reference.trim_start_matches('#'))
                .map_or(&Value::Null, |target| self.resolve(target)),
            None => value,
        }
    }
}

/// Matches a path with a template; only `{ref}` at the end may hold slashes.
fn matches(template: &str, path: &str) -> Option<HashMap<String, String>> {
    let mut parameters = HashMap::new();
    let (mut wanted, mut given) = (template.split('/').peekable(), path.split('/'));
    while let Some(part) = wanted.next() {
        let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
            if given.next()? != part {
                return None;
            }
            continue;
        };
        let mut value = given.next()?.to_owned();
        if name == "ref" && wanted.peek().is_none() {
            for rest in given.by_ref() {
                value = format!("{value}/{rest}");
            }
        }
        let decoded = percent_encoding::percent_decode_str(&value).decode_utf8().ok()?;
        parameters.insert(name.to_owned(), decoded.into_owned());
    }
    given.next().is_none().then_some(parameters)
}

/// Lays `own` over `object`; lists and plain values replace.
pub fn lay_over(object: &mut Value, own: Value) {
    match (object, own) {
        (Value::Object(object), Value::Object(own)) => {
            for (name, value) in own {
                lay_over(object.entry(name).or_insert(Value::Null), value);
            }
        }
        (object, own) => *object = own,
    }
}

/// OpenAPI 3.0 has `nullable` where JSON Schema has the type `null`.
fn to_json_schema(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(to_json_schema);
            if map.get("nullable") != Some(&Value::Bool(true)) {
                return;
            }
            map.remove("nullable");
            if let Some(kind) = map.get("type").filter(|kind| kind.is_string()).cloned() {
                map.insert("type".to_owned(), json!([kind, "null"]));
            }
            if let Some(Value::Array(values)) = map.get_mut("enum")
                && !values.contains(&Value::Null)
            {
                values.push(Value::Null);
            }
            for key in ["allOf", "anyOf", "oneOf"] {
                if let Some(parts) = map.remove(key) {
                    let inner = json!({ key: parts });
                    map.insert("anyOf".to_owned(), json!([inner, {"type": "null"}]));
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(to_json_schema),
        _ => {}
    }
}
