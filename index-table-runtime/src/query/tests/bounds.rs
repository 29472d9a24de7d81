//! Comparison of every combination of bounds with a filter.

use std::{fmt::Debug, ops::Bound};

use super::{Bounds, Keys, borrowed, encoded, range_contains, ranges};
use crate::model::key::{Desc, Key};

type Film = (u8, String, i16);

const NUMBERS: [u8; 4] = [0, 1, 0xFE, 0xFF];
const TEXTS: [&str; 8] = ["", "\0", "\u{1}", "a", "a\0", "ab", "b", "\u{10FFFF}"];
const YEARS: [i16; 5] = [i16::MIN, -1, 0, 1, i16::MAX];

fn films() -> Keys<Film> {
    let values = NUMBERS.iter().flat_map(|&number| {
        TEXTS.iter().flat_map(move |text| YEARS.map(|year| (number, (*text).to_owned(), year)))
    });
    Keys::new(values, &[&[], &[0], &[0xFF; 8]])
}

fn each_range<T: Clone + Debug>(values: &[T], mut check: impl FnMut((Bound<T>, Bound<T>))) {
    for start in values {
        for end in values {
            ranges(start, end).into_iter().for_each(&mut check);
        }
    }
}

fn less<T: Ord>(a: &T, b: &T) -> bool {
    a < b
}

#[test]
fn unrestricted_bounds_contain_all_keys() {
    for bounds in [Bounds::new(), Bounds::default(), Bounds::new().starting_with::<String>("")] {
        assert!(bounds.range.is_everything());
        assert_eq!((bounds.range.start(), bounds.range.end()), (&[][..], None));
        films().check(&bounds, |_| true, || "everything".to_owned());
    }
    let bounds = Bounds::new().range::<u8>(..);
    assert!(bounds.range.is_everything());
    films().check(&bounds, |_| true, || "everything".to_owned());
}

#[test]
fn bounds_contain_keys_with_equal_fields() {
    let films = films();
    for number in NUMBERS {
        let of_number = Bounds::new().equal::<u8>(number);
        films.check(&of_number, |film| film.0 == number, || format!("{number}"));
        for text in TEXTS {
            let of_text = of_number.clone().equal::<String>(text);
            films.check(
                &of_text,
                |film| film.0 == number && film.1 == text,
                || format!("{number} {text:?}"),
            );
            for year in YEARS {
                let bounds = of_text.clone().equal::<i16>(year);
                let film = (number, text.to_owned(), year);
                films.check(&bounds, |other| *other == film, || format!("{film:?}"));
                let at_once = Bounds::new().equal::<Film>((number, text, year));
                assert_eq!(
                    (at_once.range.start(), at_once.range.end()),
                    (bounds.range.start(), bounds.range.end())
                );
            }
        }
    }
    // Absent values.
    films.check(&Bounds::new().equal::<u8>(2), |_| false, || "2".to_owned());
    let bounds = Bounds::new().equal::<u8>(1).equal::<String>("aa");
    films.check(&bounds, |_| false, || "1, aa".to_owned());
}

#[test]
fn a_range_can_restrict_the_first_field() {
    let films = films();
    each_range(&[0, 1, 2, 0xFE, 0xFF], |range| {
        let bounds = Bounds::new().range::<u8>(range);
        films.check(&bounds, |film| range_contains(&range, &film.0, less), || format!("{range:?}"));
    });
}

#[test]
fn a_range_of_a_string_can_follow_an_equal_field() {
    let films = films();
    let texts: Vec<String> = TEXTS.iter().chain(&["aa"]).map(|text| (*text).to_owned()).collect();
    for number in NUMBERS {
        each_range(&texts, |range| {
            let bounds = Bounds::new()
                .equal::<u8>(number)
                .range::<String>((borrowed(&range.0), borrowed(&range.1)));
            films.check(
                &bounds,
                |film| film.0 == number && range_contains(&range, &film.1, less),
                || format!("{number} {range:?}"),
            );
        });
    }
}

#[test]
fn a_range_can_follow_two_equal_fields() {
    let films = films();
    for number in [0, 0xFF] {
        for text in ["", "\0", "a", "\u{10FFFF}"] {
            each_range(&YEARS, |range| {
                let bounds =
                    Bounds::new().equal::<u8>(number).equal::<String>(text).range::<i16>(range);
                films.check(
                    &bounds,
                    |film| {
                        film.0 == number && film.1 == text && range_contains(&range, &film.2, less)
                    },
                    || format!("{number} {text:?} {range:?}"),
                );
            });
        }
    }
}

#[test]
fn a_prefix_contains_the_strings_that_start_with_it() {
    let films = films();
    for number in NUMBERS {
        for prefix in TEXTS.iter().chain(&["aa", "a\u{1}", "\u{2}"]) {
            let bounds = Bounds::new().equal::<u8>(number).starting_with::<String>(prefix);
            films.check(
                &bounds,
                |film| film.0 == number && film.1.starts_with(prefix),
                || format!("{number} {prefix:?}"),
            );
        }
    }
    let texts = Keys::new(TEXTS.map(|text| (text.to_owned(), 7_u8)), &[&[], &[0], &[0xFF]]);
    for prefix in TEXTS {
        let bounds = Bounds::new().starting_with::<String>(prefix);
        texts.check(&bounds, |value| value.0.starts_with(prefix), || format!("{prefix:?}"));
    }
}

/// No key follows a key whose bytes are all `FF`.
#[test]
fn ranges_can_end_at_the_greatest_keys() {
    let bytes = [[0, 0], [0, 0xFF], [0xFF, 0], [0xFF, 0xFE], [0xFF, 0xFF]];
    let numbers = [0, 1, u16::MAX - 1, u16::MAX];
    let values =
        NUMBERS.iter().flat_map(|&a| numbers.iter().flat_map(move |&b| bytes.map(|c| (a, b, c))));
    let keys = Keys::new(values, &[&[], &[0, 0], &[0xFF, 0xFF]]);
    each_range(&NUMBERS, |range| {
        let bounds = Bounds::new().range::<u8>(range);
        keys.check(&bounds, |key| range_contains(&range, &key.0, less), || format!("{range:?}"));
    });
    for a in NUMBERS {
        let of_a = Bounds::new().equal::<u8>(a);
        each_range(&numbers, |range| {
            let bounds = of_a.clone().range::<u16>(range);
            let inside =
                |key: &(u8, u16, [u8; 2])| key.0 == a && range_contains(&range, &key.1, less);
            keys.check(&bounds, inside, || format!("{a} {range:?}"));
        });
        for b in numbers {
            let of_b = of_a.clone().equal::<u16>(b);
            keys.check(&of_b, |key| (key.0, key.1) == (a, b), || format!("{a} {b}"));
            each_range(&bytes, |range| {
                let bounds = of_b.clone().range::<[u8; 2]>(range);
                let inside = |key: &(u8, u16, [u8; 2])| {
                    (key.0, key.1) == (a, b) && range_contains(&range, &key.2, less)
                };
                keys.check(&bounds, inside, || format!("{a} {b} {range:?}"));
            });
        }
    }
}

fn floats<T>(values: &[T], total_cmp: fn(&T, &T) -> std::cmp::Ordering)
where
    T: for<'a> Key<Arg<'a> = T> + Clone + Debug,
{
    let keys = Keys::new(values.iter().cloned(), &[&[], &[0xFF]]);
    each_range(values, |range| {
        let inside = |value: &T| range_contains(&range, value, |a, b| total_cmp(a, b).is_lt());
        keys.check(&Bounds::new().range::<T>(range.clone()), inside, || format!("{range:?}"));
    });
}

#[test]
fn a_range_of_floats_is_in_total_order() {
    floats(
        &[-f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f64::INFINITY, f64::NAN],
        f64::total_cmp,
    );
    floats(&[f32::from_bits(u32::MAX), -1.0, -0.0, 0.0, f32::from_bits(!0 >> 1)], f32::total_cmp);
}

#[test]
fn a_range_of_options_starts_with_none() {
    let values = [None, Some(0), Some(1), Some(u8::MAX)];
    let keys = Keys::new(values.map(|value| (value, false)), &[&[], &[0xFF]]);
    each_range(&values, |range| {
        let bounds = Bounds::new().range::<Option<u8>>(range);
        keys.check(&bounds, |key| range_contains(&range, &key.0, less), || format!("{range:?}"));
    });
}

#[test]
fn range_expressions_are_bounds() {
    let films = films();
    let check = |bounds: Bounds, inside: &dyn Fn(&Film) -> bool| {
        films.check(&bounds, inside, || "written".to_owned());
    };
    let one = || Bounds::new().equal::<u8>(1);
    check(one().range::<String>("a".."b"), &|f| f.0 == 1 && ("a".."b").contains(&&*f.1));
    check(one().range::<String>("a"..="b"), &|f| f.0 == 1 && ("a"..="b").contains(&&*f.1));
    check(one().range::<String>(.."b"), &|f| f.0 == 1 && *f.1 < *"b");
    check(one().range::<String>(..="b"), &|f| f.0 == 1 && *f.1 <= *"b");
    check(one().range::<String>("a"..), &|f| f.0 == 1 && *f.1 >= *"a");
    check(one().range::<String>(..), &|f| f.0 == 1);
    check(Bounds::new().range::<u8>(1..0xFF), &|f| (1..0xFF).contains(&f.0));
}

#[test]
fn a_range_with_its_start_after_its_end_is_empty() {
    let films = films();
    let empty = |bounds: Bounds| {
        assert!(!bounds.range.is_everything());
        films.check(&bounds, |_| false, || "empty".to_owned());
    };
    empty(Bounds::new().range::<u8>((Bound::Included(0xFF), Bound::Included(0))));
    empty(Bounds::new().range::<u8>((Bound::Excluded(0xFF), Bound::Unbounded)));
    empty(Bounds::new().range::<u8>((Bound::Unbounded, Bound::Excluded(0))));
    empty(Bounds::new().range::<u8>((Bound::Excluded(1), Bound::Excluded(1))));
    empty(Bounds::new().range::<u8>((Bound::Excluded(0xFF), Bound::Included(0xFF))));
    let last = || Bounds::new().equal::<u8>(0xFF);
    empty(last().range::<String>((Bound::Included("b"), Bound::Included("a"))));
    empty(last().range::<String>((Bound::Excluded("\u{10FFFF}"), Bound::Unbounded)));
    empty(last().range::<String>((Bound::Unbounded, Bound::Excluded(""))));
}

#[test]
fn bounds_have_these_bytes() {
    let ends = |bounds: &Bounds| (bounds.range.start().to_vec(), bounds.range.end());
    let field = Bounds::new().equal::<u8>(7);
    assert_eq!(ends(&field), (vec![7], Some(vec![8])));
    assert_eq!(ends(&Bounds::new().equal::<u8>(0xFF)), (vec![0xFF], None));
    let text = field.clone().equal::<String>("a");
    assert_eq!(ends(&text), (vec![7, b'a', 0], Some(vec![7, b'a', 1])));
    let prefix = field.clone().starting_with::<String>("a");
    assert_eq!(ends(&prefix), (vec![7, b'a'], Some(vec![7, b'b'])));
    let range = field.clone().range::<String>("a".."b");
    assert_eq!(ends(&range), (vec![7, b'a', 0], Some(vec![7, b'b', 0])));
    let after = field.range::<String>((Bound::Excluded("a"), Bound::Unbounded));
    assert_eq!(ends(&after), (vec![7, b'a', 1], Some(vec![8])));
    assert_eq!(encoded(&(7_u8, "a".to_owned())), [7, b'a', 0]);
}

/// Ranges of descending fields are ranges of values.
#[test]
fn ranges_of_descending_fields_contain_the_right_keys() {
    type Row = (Desc<u8>, Desc<String>, Desc<Option<i16>>);
    let years = || YEARS.map(Some).into_iter().chain([None]);
    let values = NUMBERS.iter().flat_map(|&number| {
        TEXTS.iter().flat_map(move |text| {
            years().map(move |year| (Desc(number), Desc((*text).to_owned()), Desc(year)))
        })
    });
    let rows: Keys<Row> = Keys::new(values, &[&[], &[0], &[0xFF; 8]]);
    let texts: Vec<String> = TEXTS.iter().chain(&["aa"]).map(|text| (*text).to_owned()).collect();

    each_range(&[0, 1, 2, 0xFE, 0xFF], |range| {
        let bounds = Bounds::new().range::<Desc<u8>>(range);
        rows.check(&bounds, |row| range_contains(&range, &row.0.0, less), || format!("{range:?}"));
    });
    for number in NUMBERS {
        let of_number = Bounds::new().equal::<Desc<u8>>(number);
        each_range(&texts, |range| {
            let ends = (borrowed(&range.0), borrowed(&range.1));
            let bounds = of_number.clone().range::<Desc<String>>(ends);
            rows.check(
                &bounds,
                |row| row.0.0 == number && range_contains(&range, &row.1.0, less),
                || format!("{number} {range:?}"),
            );
        });
        for text in &texts {
            let bounds = of_number.clone().starting_with::<Desc<String>>(text);
            rows.check(
                &bounds,
                |row| row.0.0 == number && row.1.0.starts_with(text.as_str()),
                || format!("{number} {text:?}…"),
            );
        }
        for text in ["", "\0", "\u{10FFFF}"] {
            let of_text = of_number.clone().equal::<Desc<String>>(text);
            each_range(&years().collect::<Vec<_>>(), |range| {
                let bounds = of_text.clone().range::<Desc<Option<i16>>>(range);
                rows.check(
                    &bounds,
                    |row| {
                        row.0.0 == number
                            && row.1.0 == text
                            && range_contains(&range, &row.2.0, less)
                    },
                    || format!("{number} {text:?} {range:?}"),
                );
            });
        }
    }
}
