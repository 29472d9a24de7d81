//! Declarations with and without warnings.

use syn::{Expr, File, Item, Stmt};

use crate::derive;

/// Returns the names of the warnings about a struct with these indexes.
fn warnings(indexes: &str) -> Vec<String> {
    let input = format!(
        "{indexes} struct Film {{ #[primary_key] genre: String, #[primary_key] title: String, \
         year: u16, shown: bool, rated: Option<bool>, flags: Vec<bool>, nick: Option<String>, \
         tags: Vec<String>, odd: Odd }}"
    );
    let output = derive(input.parse().expect("the input has tokens"));
    let file: File = syn::parse2(output).expect("the expansion has items");
    let inner = |item: &Item| {
        let Item::Const(item) = item else { return None };
        let Expr::Block(block) = &*item.expr else { return None };
        let Some(Stmt::Item(Item::Const(inner))) = block.block.stmts.first() else { return None };
        inner.attrs.iter().any(|attribute| attribute.path().is_ident("deprecated")).then_some(())?;
        Some(inner.ident.to_string())
    };
    file.items.iter().filter_map(inner).collect()
}

#[track_caller]
fn assert_warnings(indexes: &str, expected: &[&str]) {
    assert_eq!(warnings(indexes), expected, "{indexes}");
}

#[test]
fn an_index_on_a_bool_alone_is_a_warning() {
    for alone in [
        "#[index(shown)]",
        "#[index(rated)]",
        "#[index(desc(shown))]",
        "#[index(each(flags))]",
        "#[index(computed(is_new: bool))]",
        "#[index(shown, include = [year])]",
        "#[index(shown, strategy = \"full\")]",
    ] {
        assert_warnings(alone, &["FEW_VALUES"]);
    }
    for not in [
        "#[index(shown, year)]",
        "#[index(year, shown)]",
        "#[index(shown, filter = is_new, name = \"new\")]",
        "#[index(rated, sparse)]",
        "#[index(shown, unique)]",
        "#[index(odd)]",
        "#[index(shown, allow(few_values))]",
    ] {
        assert_warnings(not, &[]);
    }
}

#[test]
fn an_index_that_the_derive_adds_is_no_warning() {
    assert_warnings("#[table(expires = genre)]", &[]);
    assert_warnings("#[table(expires = nick)] #[index(nick, year, sparse)]", &[]);
}

#[test]
fn a_prefix_of_another_index_is_a_warning() {
    for one in [
        "#[index(year)] #[index(year, nick)]",
        "#[index(year, nick)] #[index(year)]",
        "#[index(desc(year))] #[index(desc(year), nick)]",
        "#[index(each(tags))] #[index(each(tags), year)]",
        "#[index(year)] #[index(year, nick, unique)]",
        "#[index(year, strategy = \"full\")] #[index(year, nick, strategy = \"full\")]",
        "#[index(year, include = [shown])] #[index(year, nick, include = [rated, shown])]",
        "#[index(year, include = [nick])] #[index(year, nick, include = [rated])]",
        "#[index(year, filter = is_new, name = \"new\")] #[index(year, nick, filter = is_new, name = \"both\")]",
        "#[index(nick, sparse)] #[index(nick, year, sparse)]",
        // Of two equal indexes, only the second causes a warning.
        "#[index(year, nick)] #[index(year, nick, name = \"twice\")]",
        "#[index(year, include = [shown])] #[index(year, include = [shown], name = \"twice\")]",
        // The primary key is also an index.
        "#[index(genre)]",
        "#[index(genre, title, strategy = \"full\")]",
        "#[index(genre, title, unique)]",
    ] {
        assert_warnings(one, &["REDUNDANT"]);
    }
    for not in [
        "#[index(year)] #[index(nick, year)]",
        "#[index(year)] #[index(desc(year), nick)]",
        // Another strategy, or fewer carried fields.
        "#[index(year)] #[index(year, nick, include = [shown])]",
        "#[index(year, include = [shown])] #[index(year, nick, strategy = \"full\")]",
        "#[index(year, include = [shown])] #[index(year, nick, include = [rated])]",
        // A unique index is a constraint.
        "#[index(year, unique)] #[index(year, nick)]",
        // Other rows.
        "#[index(year, filter = is_new, name = \"new\")] #[index(year, nick)]",
        "#[index(year)] #[index(year, nick, filter = is_new, name = \"new\")]",
        "#[index(year, filter = is_new, name = \"new\")] #[index(year, nick, filter = is_old, name = \"old\")]",
        "#[index(nick)] #[index(nick, year, sparse)]",
        "#[index(nick, sparse)] #[index(nick, rated, sparse)]",
        "#[index(nick, sparse)] #[index(nick, odd, sparse)]",
        // Several entries for a row, or none.
        "#[index(year)] #[index(year, each(tags))]",
        "#[index(year, allow(redundant))] #[index(year, nick)]",
        // A partial index may carry less than the row.
        "#[index(genre, include = [year])]",
        "#[index(desc(genre))]",
        "#[index(title)]",
        "#[index(genre, filter = is_new, name = \"new\")]",
        "#[index(genre, year)]",
        "#[index(genre, unique)]",
        "#[index(title, genre, unique)]",
        "#[index(genre, title, unique, allow(redundant))]",
        "#[index(genre, title, unique, filter = is_new, name = \"new\")]",
    ] {
        assert_warnings(not, &[]);
    }
}

#[test]
fn a_second_full_index_is_a_warning() {
    let two = "#[index(year, strategy = \"full\")] #[index(nick, strategy = \"full\")]";
    assert_warnings(two, &["DOUBLED_FULL"]);
    let three = format!("{two} #[index(odd, strategy = \"full\")]");
    assert_warnings(&three, &["DOUBLED_FULL", "DOUBLED_FULL"]);
    for not in [
        "#[index(year, strategy = \"full\")] #[index(nick, strategy = \"full\", allow(doubled_full))]",
        "#[index(year, strategy = \"full\")] #[index(nick, strategy = \"full\", filter = is_new, name = \"new\")]",
        "#[index(nick, strategy = \"full\", sparse)] #[index(year, strategy = \"full\")]",
        "#[index(year, strategy = \"full\")] #[index(nick, include = [shown])]",
    ] {
        assert_warnings(not, &[]);
    }
    // If the first index is removed, one full index remains.
    assert_warnings(
        "#[index(year, strategy = \"full\")] #[index(year, nick, strategy = \"full\")]",
        &["REDUNDANT"],
    );
}

#[test]
fn an_option_in_the_primary_key_is_a_warning() {
    let warnings = |table: &str, ty: &str| {
        let input = format!("{table} struct Film {{ #[primary_key] id: {ty}, year: u16 }}");
        let output = derive(input.parse().expect("the input has tokens")).to_string();
        output.matches("deprecated (note").count()
    };
    for ty in ["Option<u64>", "std::option::Option<String>", "Option<Kind>"] {
        assert_eq!(warnings("", ty), 1, "{ty}");
        assert_eq!(warnings("#[table(allow(optional_key))]", ty), 0, "{ty}");
        // There are no warnings if there is an error.
        assert_eq!(warnings("#[index(yaer)]", ty), 0, "{ty}");
    }
    for ty in ["u64", "Kind", "(Option<u8>, u8)"] {
        assert_eq!(warnings("", ty), 0, "{ty}");
    }
}

#[test]
fn several_warnings_are_reported_without_errors_only() {
    let two = "#[index(shown)] #[index(shown, year)]";
    assert_warnings(two, &["FEW_VALUES", "REDUNDANT"]);
    assert_warnings("#[index(shown, allow(redundant, few_values))] #[index(shown, year)]", &[]);
    assert_warnings("#[index(shown, allow(few_values))] #[index(shown, year)]", &["REDUNDANT"]);
    // Allowing an absent warning has no effect.
    assert_warnings("#[index(year, allow(few_values, redundant, doubled_full))]", &[]);
    assert_warnings(&format!("{two} #[index(yaer)]"), &[]);
}
