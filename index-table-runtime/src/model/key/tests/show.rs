//! Keys in messages, and the names of shapes.

use super::encoded;
use crate::model::key::{Desc, Key, KeyBuf, KeyShape, show_key, show_leading};

fn shown<T: Key>(value: &T) -> String {
    show_key([T::SHAPE].iter(), &encoded(value))
}

#[test]
fn a_single_field_is_shown_without_parentheses() {
    assert_eq!(shown(&7_u64), "7");
    assert_eq!(shown(&u128::MAX), u128::MAX.to_string());
    assert_eq!(shown(&-7_i8), "-7");
    assert_eq!(shown(&i8::MIN), "-128");
    assert_eq!(shown(&i64::MAX), i64::MAX.to_string());
    assert_eq!(shown(&i128::MIN), i128::MIN.to_string());
    assert_eq!(shown(&i128::MAX), i128::MAX.to_string());
    assert_eq!(shown(&isize::MIN), isize::MIN.to_string());
    assert_eq!(shown(&true), "true");
    assert_eq!(shown(&'é'), "'é'");
    assert_eq!(shown(&-0.0_f32), "-0.0");
    assert_eq!(shown(&1.5_f64), "1.5");
    assert_eq!(shown(&"Redmond".to_owned()), r#""Redmond""#);
    assert_eq!(shown(&"a\0\"b".to_owned()), r#""a\0\"b""#);
    assert_eq!(shown(&vec![0_u8, 1, 0xFF]), "0x0001ff");
    assert_eq!(shown(&[0xAB_u8, 0]), "0xab00");
    assert_eq!(shown(&None::<u8>), "None");
    assert_eq!(shown(&Some(Some("x".to_owned()))), r#"Some(Some("x"))"#);
    assert_eq!(shown(&("x".to_owned(), 7_u8)), r#"("x", 7)"#);
    assert_eq!(shown(&Desc(-7_i8)), "-7");
    assert_eq!(shown(&Desc(Some("a\0".to_owned()))), r#"Some("a\0")"#);
    assert_eq!(shown(&Desc((None::<u8>, true))), "(None, true)");
}

#[test]
fn several_fields_are_shown_as_a_tuple() {
    let mut key = KeyBuf::new();
    key.push(&"Redmond".to_owned()).push(&"Smith".to_owned());
    let shapes = [String::SHAPE, String::SHAPE];
    assert_eq!(show_key(shapes.iter(), key.as_bytes()), r#"("Redmond", "Smith")"#);

    let mut key = KeyBuf::new();
    key.push(&(7_u8, Some(-1_i16))).push(&false);
    let shapes = [<(u8, Option<i16>)>::SHAPE, bool::SHAPE];
    assert_eq!(show_key(shapes.iter(), key.as_bytes()), "((7, Some(-1)), false)");
}

#[test]
fn bytes_that_are_not_a_key_are_shown_in_hex() {
    assert_eq!(show_key([u16::SHAPE].iter(), &[7]), "0x07");
    assert_eq!(show_key([u16::SHAPE].iter(), &[0, 7, 9]), "0x000709");
    assert_eq!(show_key([u16::SHAPE].iter(), &[]), "0x");
    assert_eq!(show_key([bool::SHAPE].iter(), &[2]), "0x02");
    assert_eq!(show_key([String::SHAPE].iter(), &[0xFF, 0]), "0xff00");
    assert_eq!(show_key([u8::SHAPE, String::SHAPE].iter(), &[7, b'a']), "0x0761");
    assert_eq!(show_key([Desc::<bool>::SHAPE].iter(), &[0]), "0x00");
    assert_eq!(show_key([Desc::<String>::SHAPE].iter(), &[!b'a']), "0x9e");
}

#[test]
fn long_keys_are_truncated() {
    // 118 letters and two quotation marks are 120 bytes, the limit.
    let text = "x".repeat(118);
    assert_eq!(shown(&text), format!("\"{text}\""));
    assert_eq!(shown(&"x".repeat(119)), format!("\"{}… (120 bytes)", "x".repeat(119)));
    // The text is not truncated in the middle of a letter: a quotation mark and 59 letters are 119 bytes.
    assert_eq!(shown(&"é".repeat(100)), format!("\"{}… (201 bytes)", "é".repeat(59)));
    assert_eq!(
        show_key([u8::SHAPE].iter(), &[0xAB; 100]),
        format!("0x{}… (100 bytes)", "ab".repeat(59))
    );
}

#[test]
fn shapes_have_names() {
    let name = |shape: KeyShape| shape.to_string();
    assert_eq!(name(<(Option<String>, [u8; 3])>::SHAPE), "(option<text>,bytes[3])");
    assert_eq!(name(Desc::<Option<String>>::SHAPE), "desc<option<text>>");
    assert_eq!(name(Option::<Option<(u8, Vec<u8>)>>::SHAPE), "option<option<(u8,bytes)>>");
}

#[test]
fn values_of_named_types_have_their_usual_forms() {
    use std::time::{Duration, SystemTime};

    const DATE: KeyShape = KeyShape::Named("date", &i32::SHAPE);
    assert_eq!(show_key([DATE].iter(), &encoded(&19_782_i32)), "2024-02-29");
    let far = show_key([DATE].iter(), &encoded(&i32::MAX));
    assert_eq!(far, i32::MAX.to_string(), "no date");
    let shapes = [KeyShape::Option(&DATE), String::SHAPE];
    let mut key = KeyBuf::new();
    key.push(&Some(19_782_i32)).push(&"a".to_owned());
    assert_eq!(show_key(shapes.iter(), key.as_bytes()), r#"(Some(2024-02-29), "a")"#);
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_208_000_500);
    assert_eq!(shown(&time), "2024-02-29T12:00:00.5Z");
    assert_eq!(shown(&Desc(Duration::from_millis(1_500))), "1.5s");
}

#[test]
fn a_boundary_is_shown_whole_and_by_its_leading_values() {
    let shapes = [String::SHAPE, u8::SHAPE];
    let text = |text: &str| encoded(&text.to_owned());
    assert_eq!(show_leading(shapes.iter(), &text("a")), r#"("a")"#);
    assert_eq!(show_leading(shapes.iter(), &[&text("a")[..], &[7]].concat()), r#"("a", 7)"#);
    let single = [String::SHAPE];
    let long = "x".repeat(300);
    assert_eq!(show_leading(single.iter(), &text(&long)), format!("{long:?}"));
    assert_eq!(show_leading(single.iter(), b"a\x01"), r#""a\0""#, "after all keys with `a`");
    assert_eq!(show_leading(single.iter(), &[0xFF]), "0xff");
    let numbers = [u8::SHAPE, u8::SHAPE, u8::SHAPE];
    assert_eq!(show_leading(numbers.iter(), &[1]), "(1)");
    assert_eq!(show_leading([u32::SHAPE].iter(), &[0, 0, 1]), "256", "after all keys with 255");
}
