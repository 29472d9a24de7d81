//! Mistakes that are repaired so that the methods which the program calls are there all the same.

use super::messages;

/// `Customer` with these attributes.
fn customer(attributes: &str) -> String {
    format!(
        "{attributes} struct Customer {{ #[primary_key] id: u64, town: String, last_name: String, \
         phone: String, tags: Vec<String> }}"
    )
}

#[track_caller]
fn one(attributes: &str, message: &str) {
    let messages = messages(&customer(attributes));
    assert_eq!(messages, [message], "{attributes}");
}

#[test]
fn a_misspelt_field_is_one_error() {
    one("#[index(twon)]", "`Customer` has no field `twon`; did you mean `town`?");
    one("#[index(twon)] #[index(town)]", "`Customer` has no field `twon`; did you mean `town`?");
    one("#[index(elsewhere)]", "`Customer` has no field `elsewhere`");
    one("#[index(town, uniqe)]", "`#[index(…)]` has no `uniqe`; did you mean `unique`?");
}

#[test]
fn mistakes_in_one_attribute_are_all_reported() {
    let found =
        messages(&customer("#[index(twon, each(tgs), strategy = \"ful\", inclde = [phone])]"));
    assert_eq!(
        found,
        [
            "`#[index(…)]` has no `inclde`; did you mean `include`?",
            "`Customer` has no field `twon`; did you mean `town`?",
            "`Customer` has no field `tgs`; did you mean `tags`?",
            "there is no strategy `ful`; did you mean `\"full\"`?",
        ]
    );
}

#[test]
fn the_fields_after_a_syntax_error_are_read() {
    let found = messages(&customer("#[index(town + 1, phne)]"));
    assert_eq!(found, ["expected `,`", "`Customer` has no field `phne`; did you mean `phone`?"]);
}

#[test]
fn the_words_of_sql_lead_to_the_order() {
    let descending = "descending order is written `desc(town)`";
    one("#[index(town desc)]", descending);
    one("#[index(town DESC, last_name)]", descending);
    one("#[index(town asc)]", "ascending order is written `town`");
    for (word, rest) in [("order", " = \"desc\""), ("sort", " = desc"), ("descending", "(town)")] {
        one(
            &format!("#[index(town, {word}{rest})]"),
            &format!("`#[index(…)]` has no `{word}`; descending order is written `desc(field)`"),
        );
    }
    one("#[index(asc(town))]", "`#[index(…)]` has no `asc`; ascending order is written `field`");
    one("#[index(town, desc)]", "this is written `desc(field)`");
    let found = messages(&customer("#[index(town descending, phone last_name, unique desc)]"));
    assert_eq!(found, [descending, "expected `,`", "expected `,`"]);
}

#[test]
fn nothing_malformed_is_accepted() {
    let malformed = [
        "#[index(,)]",
        "#[index(town,, phone)]",
        "#[index(123)]",
        "#[index(town phone)]",
        "#[index(each(,))]",
        "#[index(each tags)]",
        "#[index(computed(a:))]",
        "#[index(town, include = [,])]",
        "#[index(town, include = [phone last_name])]",
        "#[index(town, name =)]",
        "#[index(town, name = \"\")]",
        "#[index(town, filter = \"f\")]",
        "#[table(,)]",
        "#[table(name)]",
        "#[table(version = 1.5)]",
        "#[table(repository = fn)]",
        "#[table(crate = )]",
        "#[table(name = \"\")]",
    ];
    for attributes in malformed {
        let messages = messages(&customer(attributes));
        assert_eq!(messages.len(), 1, "{attributes}: {messages:?}");
    }
}

#[test]
fn a_name_can_collide_with_the_methods_of_another_index() {
    one(
        "#[index(town, last_name, name = \"at\")] #[index(phone, name = \"at_town\")]",
        "two methods would be called `find_by_at_town`: the search by `town` in the index `at` and \
         the search by `phone` in the index `at_town`; give one of the indexes another name with \
         `name = \"…\"`",
    );
}

#[test]
fn a_filtered_index_needs_a_name() {
    let message = |method: &str, name: &str| {
        format!(
            "a filtered index needs a name: its queries find only rows for which `{method}` holds, \
             and their names have to say so; add `name = \"{name}\"`"
        )
    };
    one("#[index(town, filter = is_open)]", &message("is_open", "open"));
    one("#[index(town, filter = r#match, unique)]", &message("match", "match"));
    one(
        "#[index(town, filter = is_open, name = \"\")]",
        "\"\" is no identifier, and the methods are named by it",
    );
}

#[test]
fn several_indexes_in_one_attribute_are_checked_alike() {
    let usage = "#[indexes((field), (field, unique))]";
    one("#[indexes]", &format!("there are no indexes in it: `{usage}`"));
    one("#[indexes()]", &format!("there are no indexes in it: `{usage}`"));
    one("#[indexes(town)]", &format!("expected an index in parentheses: `{usage}`"));
    one("#[indexes = \"town\"]", &format!("expected a list: `{usage}`"));
    one("#[indexes((town) (phone))]", "expected `,`");
    one("#[indexes((town), ())]", "this index has no fields: `#[index(field)]`");
    let found = messages(&customer("#[indexes((twon, + 1), (each(tgs), unique = true))]"));
    assert_eq!(
        found,
        [
            "expected a field or an option",
            "`unique` takes no value",
            "`Customer` has no field `twon`; did you mean `town`?",
            "`Customer` has no field `tgs`; did you mean `tags`?",
        ]
    );
}

#[test]
fn a_condition_of_nothing_is_one_error() {
    one("#[index(sparse)]", "this index has no fields: `#[index(field)]`");
    one("#[index(twon, sparse)] ", "`Customer` has no field `twon`; did you mean `town`?");
    one("#[index(each(tgs), sparse)]", "`Customer` has no field `tgs`; did you mean `tags`?");
}

#[test]
fn the_methods_for_different_values_have_names_too() {
    let message = "two methods would be called `distinct_last_name_by_town`: the values of \
                   `last_name` by `town` in the index `town_last_name` and the values of \
                   `last_name_by_town` in the index `last_name_by_town`; give one of the indexes \
                   another name with `name = \"…\"`";
    let found = messages(
        "#[index(town, last_name)] #[index(last_name_by_town)] struct Customer { #[primary_key] \
         id: u64, town: String, last_name: String, last_name_by_town: u8 }",
    );
    assert_eq!(found, [message]);
}

#[test]
fn values_of_the_wrong_kind_say_how_they_are_written() {
    one("#[index(\"town\")]", "expected a field or an option without quotes: `town`");
    one("#[index(town, strategy)]", "`strategy` needs a value: `strategy = \"partial\"`");
    one("#[index(town, strategy = full)]", "expected a string: `strategy = \"partial\"`");
    one("#[index(town, include = phone)]", "expected a list of fields: `include = [field]`");
    one("#[index(town, include(phone))]", "this is written `include = [field]`");
    one("#[index(town, unique = true)]", "`unique` takes no value");
    one("#[index(each = tags)]", "expected `each(field)`");
    one("#[index(each())]", "expected a field: `each(field)`");
    one("#[index(town, allow)]", "this is written `allow(redundant)`");
    one("#[index(town, allow = redundant)]", "expected `allow(redundant)`");
    one("#[index(town, allow())]", "name what is allowed: `allow(redundant)`");
    one("#[index(town, allow(few_values), allow(redundant))]", "`allow` is given twice");
    one(
        "#[index(town, allow(redundent))]",
        "there is no `redundent` to allow; did you mean `redundant`?",
    );
    one(
        "#[index(town, allow(dead_code))]",
        "there is no `dead_code` to allow, only `few_values`, `redundant` and `doubled_full`",
    );
    one("#[index(town, alow(redundant))]", "`#[index(…)]` has no `alow`; did you mean `allow`?");
    one("#[table(crate = \"a\")]", "expected a path without quotes: `crate = some::path`");
    one("#[table(unique)]", "`unique` belongs into `#[index(…)]`");
    one("#[table(version = -1)]", "a version is a whole number from 1 to 4294967295");
}
