//! Values go to the server and come back as they were, or as the column's type has them.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tokio_postgres::types::Type;

use super::super::placeholders::translate;
use super::super::server::{Server, block_on, writer};
use super::*;

fn bound(value: &Value, ty: &Type) -> Result<Option<Vec<u8>>, String> {
    let mut out = BytesMut::new();
    match Bound(value).to_sql(ty, &mut out) {
        Ok(IsNull::Yes) => Ok(None),
        Ok(IsNull::No) => Ok(Some(out.to_vec())),
        Err(error) => Err(error.to_string()),
    }
}

fn stored(value: &Value, ty: &Type) -> Result<Value, String> {
    Ok(bound(value, ty)?.map_or(Value::Null, |raw| Column::from_sql(ty, &raw).unwrap().0))
}

/// Text in which the characters that matter are common.
fn texts() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec!['\0', NUL, ESCAPE, FILL, 'b', '6', '1', 'a', '\u{10FFFD}', '\u{F0000}']);
    prop::collection::vec(prop_oneof![6 => special, 1 => any::<char>()], 0..10).prop_map(String::from_iter)
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>().prop_filter("NaN is NULL", |real| !real.is_nan()).prop_map(Value::Real),
        texts().prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::Blob),
    ]
}

proptest! {
    #[test]
    fn text_and_bytes_come_back_from_a_column_of_text(value in values()) {
        let expected = match &value {
            Value::Integer(number) => Value::Text(number.to_string()),
            Value::Real(number) => Value::Text(real_text(*number)),
            other => other.clone(),
        };
        prop_assert_eq!(stored(&value, &Type::TEXT).unwrap(), expected);
    }

    #[test]
    fn what_is_found_in_text_is_found_in_its_stored_form(text in texts(), part in texts()) {
        prop_assert_eq!(encode(&text).contains(&*encode(&part)), text.contains(&part));
        prop_assert_eq!(encode(&text) == encode(&part), text == part);
    }

    #[test]
    fn parts_of_text_are_found(text in texts(), from in 0..10_usize, length in 0..10_usize) {
        let part: String = text.chars().skip(from).take(length).collect();
        prop_assert!(encode(&text).contains(&*encode(&part)));
    }

    #[test]
    fn no_stored_form_has_a_nul_and_reading_any_text_is_possible(text in texts()) {
        prop_assert!(!encode(&text).contains('\0'));
        decode(&text);
    }

    #[test]
    fn every_type_takes_or_refuses_every_value(value in values()) {
        for ty in [
            Type::TEXT, Type::INT2, Type::INT4, Type::INT8, Type::FLOAT4, Type::FLOAT8, Type::BOOL, Type::BYTEA,
            Type::UUID, Type::NUMERIC, Type::UNKNOWN, Type::TIMESTAMPTZ,
        ] {
            let _ = bound(&value, &ty);
        }
    }

    #[test]
    fn values_come_back_from_columns_of_their_type(number in any::<i64>(), real in any::<f64>()) {
        prop_assert_eq!(stored(&Value::Integer(number), &Type::INT8).unwrap(), Value::Integer(number));
        prop_assume!(!real.is_nan());
        prop_assert_eq!(stored(&Value::Real(real), &Type::FLOAT8).unwrap(), Value::Real(real));
    }
}

#[test]
fn ordinary_text_is_not_copied() {
    for text in ["", "plain", "grüße 你好 \u{1F600}"] {
        assert!(matches!(encode(text), Cow::Borrowed(_)), "{text}");
    }
    assert_eq!(encode("a\0b"), "a\u{10FFFE}b");
    assert_eq!(bound(&Value::Blob(vec![0, 0xAB]), &Type::TEXT).unwrap().unwrap(), "\u{10FFFF}b00ab".as_bytes());
}

#[test]
fn values_are_converted_as_the_affinity_of_a_column_does() {
    let text = |text: &str| Value::Text(text.into());
    for (value, ty, expected) in [
        (Value::Integer(5), Type::TEXT, text("5")),
        (Value::Real(5.0), Type::TEXT, text("5.0")),
        (text(" 12 "), Type::INT8, Value::Integer(12)),
        (text("1e3"), Type::INT8, Value::Integer(1000)),
        (Value::Real(3.0), Type::INT8, Value::Integer(3)),
        (Value::Real(-(2f64.powi(63))), Type::INT8, Value::Integer(i64::MIN)),
        (Value::Integer(3), Type::FLOAT8, Value::Real(3.0)),
        (text("2.5"), Type::FLOAT8, Value::Real(2.5)),
        (Value::Real(f64::NAN), Type::FLOAT8, Value::Null),
        (Value::Real(f64::NAN), Type::TEXT, Value::Null),
        (Value::Real(f64::INFINITY), Type::FLOAT8, Value::Real(f64::INFINITY)),
        (Value::Integer(7), Type::BOOL, Value::Integer(1)),
        (text("67e55044-10b1-426f-9247-bb680e5fe0c8"), Type::UUID, text("67e55044-10b1-426f-9247-bb680e5fe0c8")),
    ] {
        assert_eq!(stored(&value, &ty).unwrap(), expected, "{value:?} as {ty}");
    }
    for (value, ty) in [
        (text("abc"), Type::INT8),
        (text("1.5"), Type::INT8),
        (Value::Real(1.5), Type::INT8),
        (Value::Real(2f64.powi(63)), Type::INT8),
        (Value::Real(f64::INFINITY), Type::INT8),
        (Value::Integer(70_000), Type::INT2),
        (Value::Blob(vec![1]), Type::INT8),
        (Value::Blob(vec![1]), Type::FLOAT8),
        (text("nan"), Type::FLOAT8),
        (text("x"), Type::UUID),
    ] {
        assert!(stored(&value, &ty).unwrap_err().starts_with("datatype mismatch: "), "{value:?} as {ty}");
    }
}

#[test]
fn values_come_back_from_a_real_server() {
    let Some(server) = Server::shared() else { return };
    block_on(async {
        let connected = writer(&server.address()).await;
        let client = &connected.client;
        client.batch_execute("CREATE TEMP TABLE t (value text)").await.unwrap();
        let insert = client
            .prepare(&translate("INSERT INTO t (value) VALUES (?1) RETURNING value, length(value)"))
            .await
            .unwrap();
        let find = client.prepare("SELECT strpos($1::text, $2::text) > 0").await.unwrap();
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..300 {
            let value = Value::Text(texts().new_tree(&mut runner).unwrap().current());
            let row = client.query_one(&insert, &[&Bound(&value)]).await.unwrap();
            assert_eq!(row_values(&row).unwrap()[0], value);
            let part = Value::Text(texts().new_tree(&mut runner).unwrap().current().chars().take(2).collect());
            let found = client.query_one(&find, &[&Bound(&value), &Bound(&part)]).await.unwrap();
            let expected = value.as_str().unwrap().contains(part.as_str().unwrap());
            assert_eq!(row_values(&found).unwrap(), [Value::from(expected)], "{part:?} in {value:?}");
        }
        let blob = Value::Blob((0..=255).collect());
        let row = client.query_one(&insert, &[&Bound(&blob)]).await.unwrap();
        assert_eq!(row_values(&row).unwrap()[0], blob);
    });
}

#[test]
fn columns_of_every_kind_are_read() {
    let Some(server) = Server::shared() else { return };
    block_on(async {
        let connected = writer(&server.address()).await;
        for (sql, expected) in [
            ("1::int2", Value::Integer(1)),
            ("true", Value::Integer(1)),
            ("NULL::text", Value::Null),
            ("'x'", Value::from("x")),
            ("'a'::name", Value::from("a")),
            ("'{}'::json", Value::from("{}")),
            ("'\\x00ff'::bytea", Value::Blob(vec![0, 255])),
            ("1.5::float4", Value::Real(1.5)),
            ("(SELECT sum(x) FROM (VALUES (1::bigint), (2)) v (x))", Value::Integer(3)),
            ("(SELECT sum(x) FROM (VALUES (10000::bigint), (30000)) v (x))", Value::Integer(40_000)),
            ("(SELECT avg(x) FROM (VALUES (1::bigint), (3)) v (x))", Value::Real(2.0)),
            ("9223372036854775807::numeric", Value::Integer(i64::MAX)),
            ("(-9223372036854775808)::numeric", Value::Integer(i64::MIN)),
            ("9223372036854775808::numeric", Value::Real(2f64.powi(63))),
            ("123456.789::numeric", Value::Real(123456.789)),
            ("-0.0001::numeric", Value::Real(-0.0001)),
            ("0::numeric", Value::Integer(0)),
            ("0.00::numeric", Value::Real(0.0)),
            ("1e40::numeric", Value::Real(1e40)),
            ("'NaN'::numeric", Value::Null),
            ("'-Infinity'::numeric", Value::Real(f64::NEG_INFINITY)),
        ] {
            let row = connected.client.query_one(&format!("SELECT {sql}"), &[]).await.unwrap();
            assert_eq!(row_values(&row).unwrap(), [expected], "{sql}");
        }
        let row = connected.client.query_one("SELECT ARRAY[1]", &[]).await.unwrap();
        assert!(row_values(&row).is_err());
        // Other types take a parameter as text.
        let sql = "SELECT ($1::timestamptz = 'epoch')::text, $2::numeric + 1, $3::json ->> 'a'";
        let (when, number, json) = (Value::from("1970-01-01T00:00:00Z"), Value::from(41), Value::from("{\"a\":1}"));
        let row = connected.client.query_one(sql, &[&Bound(&when), &Bound(&number), &Bound(&json)]).await.unwrap();
        assert_eq!(row_values(&row).unwrap(), [Value::from("true"), Value::Integer(42), Value::from("1")]);
    });
}
