//! JSON Schema, as far as the files in `docs/` use it.

use serde_json::Value;
use std::path::Path;

/// A schema of `docs/`.
pub(crate) struct Schema(Value);

impl Schema {
    /// `docs/NAME.schema.json`.
    pub(crate) fn named(name: &str) -> Self {
        let path = format!("docs/{name}.schema.json");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        Self(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// What is wrong with a value by the schema at this pointer, empty for the whole.
    pub(crate) fn faults(&self, pointer: &str, value: &Value) -> Vec<String> {
        let schema = self.0.pointer(pointer).unwrap();
        let mut faults = Vec::new();
        check(&self.0, schema, value, "", &mut faults);
        faults
    }

    /// That it can refuse: each of these in place of what is there must be a fault.
    pub(crate) fn refuses(&self, pointer: &str, value: &Value, wrong: &[(&str, Value)]) {
        assert_eq!(self.faults(pointer, value), Vec::<String>::new());
        for (place, instead) in wrong {
            let mut wrong = value.clone();
            let at = wrong.pointer_mut(place);
            *at.unwrap_or_else(|| panic!("nothing at {place}")) = instead.clone();
            assert!(!self.faults(pointer, &wrong).is_empty(), "{place}");
        }
    }
}

/// The words of JSON Schema that the file uses; a word that is not known here is a fault too.
fn check(root: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let number = |limit: &Value| limit.as_f64().unwrap();
    for (word, rule) in schema.as_object().unwrap() {
        let fine = match &**word {
            "$schema" | "$defs" | "title" | "description" | "format" => true,
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                let target = root.pointer(pointer).unwrap();
                check(root, target, value, at, faults);
                true
            }
            "anyOf" => rule.as_array().unwrap().iter().any(|one| {
                let mut faults = Vec::new();
                check(root, one, value, at, &mut faults);
                faults.is_empty()
            }),
            "type" => match rule {
                Value::Array(types) => types.iter().any(|t| is(value, t.as_str().unwrap())),
                one => is(value, one.as_str().unwrap()),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|n| n >= number(rule)),
            "maximum" => value.as_f64().is_none_or(|n| n <= number(rule)),
            "required" => {
                let mut names = rule.as_array().unwrap().iter();
                !value.is_object() || names.all(|n| value.get(n.as_str().unwrap()).is_some())
            }
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{n}"), faults);
                }
                true
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(root, rule, member, &format!("{at}/{name}"), faults);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = |name: &str| schema["properties"].get(name).is_some();
                value.as_object().is_none_or(|o| o.keys().all(|k| known(k)))
            }
            _ => false,
        };
        if !fine {
            faults.push(format!("{at}: {word} {rule}"));
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}
