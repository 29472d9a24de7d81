//! Tests of the expansion of the macro.

mod errors;
mod expansion;
mod lints;
mod spans;

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

use crate::{derive, derive_key, derive_version};

/// Returns the input and its expansion, as in a snapshot.
fn expanded(input: &str) -> String {
    let output = derive(input.parse().expect("the input has tokens"));
    let file = syn::parse2(quote!(#output)).expect("the expansion has items");
    format!("{input}\n\n// expands to\n\n{}", prettyplease::unparse(&file))
}

#[test]
fn indexes_in_one_attribute_equal_those_in_several_attributes() {
    let expanded = |indexes: &str| {
        let input = format!("{indexes} struct Customer {{ #[primary_key] id: u64, town: String }}");
        derive(input.parse().expect("the input has tokens")).to_string()
    };
    let several = "#[index(town)] #[index(town, unique, name = \"one\")] #[index(desc(town), name = \"down\")]";
    let one = "#[indexes((town), (town, unique, name = \"one\"))] #[indexes((desc(town), name = \"down\"),)]";
    assert_eq!(expanded(one), expanded(several));
}

#[test]
fn the_guide_and_the_readme_have_the_length_of_an_expansion() {
    let input = "#[index(town)] struct Customer { #[primary_key] id: u64, town: String }";
    let expansion = expanded(input);
    let lines = expansion.lines().skip_while(|line| *line != "// expands to").count();
    let guide = include_str!("../../../src/guide/repository.md");
    for text in [guide, include_str!("../../../README.md")] {
        let stated = text.split("expands to about ").nth(1).and_then(|it| it.split(' ').next());
        let stated: usize = stated.and_then(|it| it.parse().ok()).expect("the text has a number");
        assert!(lines.abs_diff(stated) <= 10, "{stated} are stated, and there are {lines} lines");
    }
}

/// Like [`expanded`], for `#[derive(IndexKey)]`.
fn expanded_key(input: &str) -> String {
    let output = derive_key(input.parse().expect("the input has tokens"));
    let file = syn::parse2(quote!(#output)).expect("the expansion has items");
    format!("{input}\n\n// expands to\n\n{}", prettyplease::unparse(&file))
}

/// Like [`expanded`], for `#[derive(RowVersion)]`.
fn expanded_version(input: &str) -> String {
    let output = derive_version(input.parse().expect("the input has tokens"));
    let file = syn::parse2(quote!(#output)).expect("the expansion has items");
    format!("{input}\n\n// expands to\n\n{}", prettyplease::unparse(&file))
}

/// Returns the messages for an input, in the order in which they are reported.
fn messages(input: &str) -> Vec<String> {
    let output = derive(input.parse().expect("the input has tokens"));
    let mut messages = Vec::new();
    collect_messages(output, &mut messages);
    messages
}

fn collect_messages(tokens: TokenStream, messages: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (position, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let before = position.checked_sub(2).and_then(|position| tokens.get(position));
        if before.is_some_and(|before| before.to_string() == "compile_error") {
            let message: syn::LitStr = syn::parse2(group.stream()).expect("a message is a string");
            messages.push(message.value());
        } else {
            collect_messages(group.stream(), messages);
        }
    }
}
