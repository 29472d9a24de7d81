//! Tests of error messages, and of the repair of mistakes, so that the generated code still has the methods
//! that the program calls.

use super::messages;

/// Returns the struct `Customer` with these attributes.
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
fn an_index_that_lacks_rows_serves_no_aggregate() {
    one(
        "#[index(town, last_name, each(tags))] #[aggregate(town, max = [last_name])]",
        "`max` reads the last entry of a group in an index that begins with `town` and `last_name`; \
         declare `#[index(town, last_name)]`",
    );
}

#[test]
fn a_field_of_an_aggregate_has_no_name_of_a_part_of_a_sum() {
    let messages = messages(
        "#[aggregate(town, sum = [age])] struct Customer { #[primary_key] id: u64, town: String, \
         #[serde(rename = \"age.fraction\")] age: u32 }",
    );
    let message = "the name of a field of an aggregate can't end with `.fraction` in rows, which is \
                   the name of a part of a sum";
    assert_eq!(messages, [message]);
}

#[test]
fn an_index_with_the_name_of_the_time_must_order_each_row_by_it() {
    let message = "`expires` adds an index `town`, because it needs an index that begins with the \
                   time in ascending order, has each row, and is strongly consistent; give the \
                   declared index `town` another name with `name = \"…\"`";
    for index in
        ["desc(town)", "town, consistency = \"eventual\"", "town, filter = old, name = \"town\""]
    {
        one(&format!("#[table(expires = town)] #[index({index})]"), message);
    }
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
fn fields_after_a_syntax_error_are_checked() {
    let found = messages(&customer("#[index(town + 1, phne)]"));
    let comma = "expected `,`, which separates items, and found `+`";
    assert_eq!(found, [comma, "`Customer` has no field `phne`; did you mean `phone`?"]);
}

#[test]
fn words_of_sql_are_replaced_in_the_advice() {
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
    let words = ["expected `,` before `last_name`", "expected `,` before `desc`"];
    assert_eq!(found, [descending, words[0], words[1]]);
}

#[test]
fn malformed_attributes_are_rejected() {
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
            "a filtered index needs a name: its queries find only rows for which `{method}` returns true, \
             and their names must show that; add `name = \"{name}\"`"
        )
    };
    one("#[index(town, filter = is_open)]", &message("is_open", "open"));
    one("#[index(town, filter = r#match, unique)]", &message("match", "match"));
    one(
        "#[index(town, filter = is_open, name = \"\")]",
        "\"\" is not an identifier, and the names of the methods contain it",
    );
}

#[test]
fn several_indexes_in_one_attribute_are_all_checked() {
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
            "`unique` takes no value; write the word alone",
            "`Customer` has no field `twon`; did you mean `town`?",
            "`Customer` has no field `tgs`; did you mean `tags`?",
        ]
    );
}

#[test]
fn a_prefix_that_names_the_row_is_reported() {
    for path in ["self.town", "Self::town", "Customer::town", "&town", "&self.town"] {
        one(&format!("#[index({path}, phone)]"), "write the field alone: `town`");
        one(&format!("#[index(desc({path}))]"), "write the field alone: `town`");
    }
    one(
        "#[index(self.town.len())]",
        "an index can only name fields of the row; for a field inside `town`, write a method \
         that returns it: `computed(method: Type)`",
    );
    for path in ["Customer::open", "self.open", "self::Customer::open"] {
        let method = "write the method alone: `open`";
        one(&format!("#[index(town, filter = {path}, name = \"open\")]"), method);
        one(&format!("#[index(computed({path}: u8))]"), method);
    }
    one(
        "#[index(town, filter = open(), name = \"open\")]",
        "write the method alone: `filter = open`",
    );
    one(
        "#[index(town, filter = \"open\", name = \"open\")]",
        "expected the name of a method without quotes: `filter = open`",
    );
    one("#[index(computed(open))]", "expected `computed(open: Type)`");
    one(
        "#[index(computed(open: 3))]",
        "expected the type that the method returns: `computed(method: Type)`",
    );
}

#[test]
fn the_value_of_an_option_alone_suggests_the_option() {
    one("#[index(town, full)]", "`#[index(…)]` has no `full`; did you mean `strategy = \"full\"`?");
    one(
        "#[index(town, partial, include = [phone])]",
        "`#[index(…)]` has no `partial`; did you mean `strategy = \"partial\"`?",
    );
    one(
        "#[index(town, eventual)]",
        "`#[index(…)]` has no `eventual`; did you mean `consistency = \"eventual\"`?",
    );
    one(
        "#[index(town, \"full\")]",
        "expected a field or an option; did you mean `strategy = \"full\"`?",
    );
}

#[test]
fn the_name_of_a_table_needs_its_key() {
    one("#[table(\"customers\")]", "the name of a table is written `name = \"customers\"`");
    one(
        "#[table(customers)]",
        "`#[table(…)]` has no `customers`, only `name`, `was`, `version`, `previous`, `changed`, \
         `repository`, `view`, `expires`, `changes`, `shard_by`, `shard_map`, `reference`, `part_of`, `keep_unknown`, \
         `allow` and `crate`; \
         the name of a table is written `name = \"customers\"`",
    );
    one("#[table(viwe)]", "`#[table(…)]` has no `viwe`; did you mean `view`?");
}

#[test]
fn a_field_with_the_name_of_an_option_is_raw() {
    let found = |indexes: &str| {
        messages(&format!(
            "{indexes} struct Page {{ #[primary_key] id: u64, unique: u64, sparse: Option<u8> }}"
        ))
    };
    for name in ["unique", "sparse"] {
        let advice = format!("`{name}` is an option here; the field is written `r#{name}`");
        assert_eq!(found(&format!("#[index({name})]")), [advice.as_str()]);
        assert_eq!(found(&format!("#[index(r#{name})]")), [""; 0]);
        assert_eq!(
            found(&format!("#[index({name}, id)]")),
            [format!("fields come before options; move `id` forward; {advice}")]
        );
    }
    one("#[index(unique)]", "this index has no fields: `#[index(field)]`");
}

#[test]
fn a_missing_part_is_one_error() {
    for fields in ["fields = [town]", "columns = \"town\"", "on = town", "key = town"] {
        let word = fields.split(' ').next().expect("there is a word");
        one(
            &format!("#[index({fields})]"),
            &format!("`#[index(…)]` has no `{word}`; write the fields alone: `#[index(field)]`"),
        );
    }
    one("#[index(unique(town))]", "this is written `#[index(town, unique)]`");
    one("#[index(include(town))]", "this is written `include = [town]`");
    one("#[index(crate = x)]", "`crate = some::path` is an option of `#[table(…)]`");
    // This attribute has two mistakes.
    let found = messages(&customer("#[index(strateg = \"full\")]"));
    assert_eq!(
        found,
        [
            "`#[index(…)]` has no `strateg`; did you mean `strategy`?",
            "this index has no fields: `#[index(field)]`",
        ]
    );
}

#[test]
fn a_primary_key_in_the_wrong_place_is_one_error() {
    let message = "`#[primary_key]` is written on the field that identifies a row";
    for attributes in [
        "#[primary_key(id)]",
        "#[table(primary_key = id)]",
        "#[index(primary_key)]",
        "#[index(id, primary_key)]",
        "#[index(primary_key(id))]",
    ] {
        let found = messages(&format!("{attributes} struct Page {{ id: u64 }}"));
        assert_eq!(found, [message], "{attributes}");
    }
    // In this struct, `primary_key` is a field.
    let found = messages("#[index(primary_key)] struct Page { primary_key: u64 }");
    assert_eq!(
        found,
        ["this table has no primary key; mark the field that identifies a row with \
          `#[primary_key]`, or several for a composite key"]
    );
}

#[test]
fn a_condition_without_fields_is_one_error() {
    one("#[index(sparse)]", "this index has no fields: `#[index(field)]`");
    one("#[index(twon, sparse)] ", "`Customer` has no field `twon`; did you mean `town`?");
    one("#[index(each(tgs), sparse)]", "`Customer` has no field `tgs`; did you mean `tags`?");
}

#[test]
fn a_reference_names_exactly_one_struct() {
    const USAGE: &str = "`#[references(Customer, on_delete = \"restrict\")]`";
    let message = format!("a reference names the struct of the referenced rows: {USAGE}");
    one("#[references(fields = [town])]", &message);
    one("#[references(Town, Region, fields = [town])]", "a reference names one struct");
    one("#[references(\"Town\", fields = [town])]", "expected a struct without quotes: `Town`");
}

#[test]
fn methods_for_distinct_values_can_collide() {
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
fn values_of_the_wrong_kind_show_the_syntax() {
    one("#[index(\"town\")]", "expected a field or an option without quotes: `town`");
    one("#[index(town, strategy)]", "`strategy` needs a value: `strategy = \"partial\"`");
    one("#[index(town, strategy = full)]", "expected a string: `strategy = \"full\"`");
    one("#[index(town, strategy = 1)]", "expected a string: `strategy = \"partial\"`");
    one("#[table(name = customers)]", "expected a string: `name = \"customers\"`");
    one("#[index(town, include = phone)]", "expected a list of fields: `include = [phone]`");
    one("#[index(town, include(phone))]", "this is written `include = [phone]`");
    one("#[index(town, unique = true)]", "`unique` takes no value; write the word alone");
    one("#[index(each = tags)]", "expected `each(field)`");
    one("#[index(each())]", "expected a field: `each(field)`");
    one("#[index(town, allow)]", "this is written `allow(redundant)`");
    one("#[index(town, allow = redundant)]", "expected `allow(redundant)`");
    one("#[index(town, allow())]", "`allow` needs the name of a warning: `allow(redundant)`");
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
    one("#[table(allow(few_values))]", "there is no `few_values` to allow, only `optional_key`");
    one("#[table(allow())]", "`allow` needs the name of a warning: `allow(optional_key)`");
    one("#[table(allow = optional_key)]", "this is written `allow(optional_key)`");
    one("#[table(crate = \"a\")]", "expected a path without quotes: `crate = some::path`");
    one("#[table(unique)]", "`unique` is an option of `#[index(…)]`");
    one("#[table(version = -1)]", "a version is a whole number from 1 to 4294967295");
}

#[test]
fn a_flag_takes_no_value() {
    for word in ["changes", "reference", "keep_unknown"] {
        let message = format!("`{word}` takes no value; write the word alone");
        one(&format!("#[table({word} = true)]"), &message);
    }
    one("#[index(town, sparse = false)]", "`sparse` takes no value; remove it");
}

#[test]
fn a_word_of_other_libraries_names_the_attribute() {
    let field = |attribute: &str| {
        messages(&format!("struct Customer {{ #[{attribute}] id: u64, town: String }}"))
    };
    for word in ["primary", "primarykey", "pk", "id", "key"] {
        assert_eq!(field(word), ["this is written `#[primary_key]`"], "{word}");
    }
    let field = |attribute: &str| {
        messages(&format!(
            "struct Customer {{ #[primary_key] id: u64, #[{attribute}] town: String }}"
        ))
    };
    assert_eq!(field("unique"), ["an index is declared on the struct: `#[index(town, unique)]`"]);
    assert_eq!(field("indexed"), ["an index is declared on the struct: `#[index(town)]`"]);
    assert_eq!(field("index(unique)"), field("unique"));
    assert_eq!(field("foreign_key(Town)"), ["this is written `#[references(Town)]`"]);
    assert_eq!(field("primarykey"), ["this is written `#[primary_key]`"]);
    // These may be attributes of another derive.
    assert!(field("id").is_empty() && field("key").is_empty());
    one("#[unique(town)]", "this is written `#[index(town, unique)]`");
    one("#[foreign_key(town)]", "a reference is written on its field: `#[references(Customer)]`");
}

#[test]
fn a_misspelt_primary_key_is_left_to_the_compiler() {
    assert!(messages("struct Customer { #[primay_key] id: u64 }").is_empty());
}

#[test]
fn fields_are_written_without_brackets() {
    one("#[index((town, phone))]", "write the fields alone: `#[index(town, phone)]`");
    one("#[index([town])]", "write the fields alone: `#[index(town)]`");
    one("#[index(desc town)]", "expected `desc(town)`");
    one("#[aggregate(town, max(phone))]", "this is written `max = [phone]`");
    one("#[aggregate(town, sum = [])]", "this list is empty; name the fields, or remove it");
    let message = "every aggregate counts its rows, in its field `count`; remove this word";
    one("#[aggregate(town, count)]", message);
    one("#[table(view(Seen))]", "this is written `view = Seen`");
}
