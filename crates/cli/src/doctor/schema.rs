//! Checks the JSON against docs/doctor.schema.json with a small validator of its own, because the
//! libraries for it bring forty packages along, one of them under a licence that deny.toml does not
//! know. It knows the keywords that the schema uses, and rejects any other.

use serde_json::Value;

use super::samples;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../docs/doctor.schema.json")).unwrap()
}

/// Returns where `value` violates the schema, with the place.
fn faults(root: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut complain = |ok: bool, what: &str| {
        if !ok {
            faults.push(format!("{place}: {what}: {value}"));
        }
    };
    let mut below = Vec::new();
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "properties" => {}
            "$ref" => {
                let path = rule.as_str().unwrap().strip_prefix('#').unwrap();
                below.extend(self::faults(root, root.pointer(path).unwrap(), value, place));
            }
            "type" => {
                let types = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                let fits = types.iter().any(|kind| is(value, kind.as_str().unwrap()));
                complain(fits, &format!("not of type {rule}"));
            }
            "const" => complain(value == rule, "not the constant"),
            "enum" => complain(rule.as_array().unwrap().contains(value), "not one of the words"),
            "minimum" => {
                let above = value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap());
                complain(above, "too small");
            }
            "minLength" => {
                let long = value.as_str().is_none_or(|text| !text.is_empty());
                complain(long && rule == 1, "empty");
            }
            "pattern" => {
                let pattern = regex::Regex::new(rule.as_str().unwrap()).unwrap();
                complain(value.as_str().is_none_or(|text| pattern.is_match(text)), "odd text");
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    complain(value.get(name.as_str().unwrap()).is_some(), &format!("no {name}"));
                }
            }
            "additionalProperties" => {
                assert_eq!(rule, false);
                for (name, value) in value.as_object().into_iter().flatten() {
                    match schema["properties"].get(name) {
                        Some(schema) => {
                            let place = format!("{place}.{name}");
                            below.extend(self::faults(root, schema, value, &place));
                        }
                        None => complain(false, &format!("{name} is not in the schema")),
                    }
                }
            }
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    below.extend(self::faults(root, rule, item, &format!("{place}[{at}]")));
                }
            }
            "anyOf" => {
                let fits = |schema| self::faults(root, schema, value, place).is_empty();
                complain(rule.as_array().unwrap().iter().any(fits), "fits none");
            }
            word => panic!("{place}: this check does not know {word}"),
        }
    }
    faults.extend(below);
    faults
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        kind => panic!("{kind} is no type"),
    }
}

fn check(report: &Value) -> Vec<String> {
    let schema = schema();
    faults(&schema, &schema, report, "report")
}

fn reports() -> Vec<Value> {
    let reports = [
        samples::empty(),
        samples::healthy(),
        samples::evening(),
        samples::every_kind(),
        samples::slow_program(),
        samples::looked_at(),
        samples::many(),
        samples::hostile(),
        samples::by_the_doctor(),
    ];
    reports.iter().map(|report| serde_json::to_value(report).unwrap()).collect()
}

/// Calls `visit` on every object in `value`, with its place.
fn objects(value: &mut Value, place: &str, visit: &mut impl FnMut(&mut Value, &str)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                objects(value, &format!("{place}.{name}"), visit);
            }
            visit(value, place);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| objects(item, &format!("{place}[]"), visit));
        }
        _ => {}
    }
}

#[test]
fn every_report_is_as_the_schema_says() {
    for report in reports() {
        assert_eq!(check(&report), Vec::<String>::new());
    }
}

#[test]
fn the_doctor_finds_in_the_sample_what_the_other_samples_pretend() {
    let report = samples::by_the_doctor();
    let finding = &report.connections[0].findings[0];
    assert_eq!(finding.kind, uncork_doctor::Kind::NagleDelayedAck);
    assert!(!finding.remedies.is_empty() && !finding.histogram.is_empty());
    assert!(!finding.examples[0].events.is_empty());
}

#[test]
fn a_field_more_or_less_anywhere_is_found() {
    let (mut evening, mut looked_at) = (samples::evening(), samples::looked_at());
    evening.connections.append(&mut looked_at.connections);
    (evening.sampling, evening.command) = (looked_at.sampling, looked_at.command);
    let report = serde_json::to_value(evening).unwrap();
    let mut places = Vec::new();
    objects(&mut report.clone(), "", &mut |_, place| places.push(place.to_owned()));
    places.sort();
    places.dedup();
    // Every object that the schema defines occurs in the sample.
    let known = schema()["$defs"].as_object().unwrap().clone();
    let known = known.values().filter(|of| of["type"] == "object").count();
    assert!(places.len() >= known, "{places:?}");
    for wanted in &places {
        for more in [true, false] {
            let mut changed = report.clone();
            let mut left = true;
            objects(&mut changed, "", &mut |object, place| {
                if place == wanted && std::mem::take(&mut left) {
                    let fields = object.as_object_mut().unwrap();
                    if more {
                        fields.insert("news".to_owned(), Value::Null);
                    } else {
                        let first = fields.keys().next().unwrap().clone();
                        fields.remove(&first);
                    }
                }
            });
            assert!(!check(&changed).is_empty(), "{wanted} {more}");
        }
    }
}

#[test]
fn every_kind_has_its_word_and_every_word_its_kind() {
    let said = schema()["$defs"]["kind"]["enum"].as_array().unwrap().clone();
    let kinds: Vec<_> = samples::KINDS.iter().map(|k| serde_json::to_value(k).unwrap()).collect();
    assert_eq!(said, kinds);
}

#[test]
fn every_field_is_described() {
    let schema = schema();
    for (name, of) in schema["$defs"].as_object().unwrap() {
        let fields = of["properties"].as_object().into_iter().flatten();
        for (field, of) in fields {
            let described = of["description"].as_str().is_some_and(|text| text.ends_with('.'));
            assert!(described, "{name}.{field}");
            let unit = !field.ends_with("_ms")
                || of["description"].as_str().unwrap().contains("in milliseconds");
            assert!(unit, "{name}.{field}");
        }
    }
}

#[test]
fn the_version_is_the_one_that_is_printed() {
    let version = &schema()["$defs"]["report"]["properties"]["schema_version"]["const"];
    assert_eq!(version, uncork_doctor::SCHEMA_VERSION);
}
