//! Checks of output by the schemas in `schema/`. The validator knows the keywords that they use, and no others.

use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// Returns the lines of an output, each checked by the schema `name`.
pub(crate) fn lines(name: &str, output: &str) -> Vec<Json> {
    let schema = read(name);
    let lines: Vec<Json> = output.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        if let Err(why) = check(&schema, line, "") {
            panic!("{line} is not as schema/{name}.json says: {why}");
        }
    }
    lines
}

fn read(name: &str) -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(format!("{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn check(schema: &Json, json: &Json, path: &str) -> Result<(), String> {
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let is_kept = match keyword.as_str() {
            "$schema" | "title" => true,
            "type" => types(rule).iter().any(|name| is_of(json, name)),
            "const" => rule == json,
            "required" => !json.is_object() || strings(rule).iter().all(|name| json.get(name).is_some()),
            "additionalProperties" => {
                assert_eq!(rule, &Json::Bool(false));
                fields(json).all(|(name, _)| schema["properties"].get(name).is_some())
            }
            "properties" => {
                let known = fields(json).filter_map(|(name, field)| Some((name, rule.get(name)?, field)));
                known.into_iter().try_for_each(|(name, rule, field)| check(rule, field, &format!("{path}.{name}")))?;
                true
            }
            "items" => {
                let mut items = json.as_array().into_iter().flatten();
                items.try_for_each(|item| check(rule, item, &format!("{path}[]")))?;
                true
            }
            "oneOf" => {
                let kept = |rule: &&Json| check(rule, json, path).is_ok();
                rule.as_array().unwrap().iter().filter(kept).count() == 1
            }
            other => panic!("the validator does not know {other}"),
        };
        if !is_kept {
            return Err(format!("{keyword} at {path:?}"));
        }
    }
    Ok(())
}

fn fields(json: &Json) -> impl Iterator<Item = (&String, &Json)> {
    json.as_object().into_iter().flatten()
}

fn strings(json: &Json) -> Vec<&str> {
    json.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn types(rule: &Json) -> Vec<&str> {
    rule.as_str().map_or_else(|| strings(rule), |name| vec![name])
}

fn is_of(json: &Json, name: &str) -> bool {
    match name {
        "object" => json.is_object(),
        "array" => json.is_array(),
        "string" => json.is_string(),
        "boolean" => json.is_boolean(),
        "null" => json.is_null(),
        "number" => json.is_number(),
        "integer" => json.is_i64() || json.is_u64(),
        other => panic!("the validator does not know the type {other}"),
    }
}

#[test]
fn the_validator_refuses_what_a_schema_refuses() {
    let refused = |name: &str, text: &str| check(&read(name), &serde_json::from_str(text).unwrap(), "").is_err();
    assert!(!refused("tables", r#"{"tables":[{"name":"a","key_type":"u8","value_type":"u8"}]}"#));
    assert!(refused("tables", r#"{"tables":[{"name":"a","key_type":"u8"}]}"#));
    assert!(refused("tables", r#"{"tables":[{"name":1,"key_type":"u8","value_type":"u8"}]}"#));
    assert!(refused("tables", r#"{"tables":[],"more":1}"#));
    assert!(refused("tables", "[]"));
    assert!(refused("top", "{}"));
    assert!(!refused("dump", r#"["00","01"]"#));
    assert!(refused("dump", r#"{"foreshore_dump":2}"#));
}
