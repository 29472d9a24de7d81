//! Tests of the spans of generated tokens, by which editors go from an attribute to a field.

use proc_macro2::{TokenStream, TokenTree};

use crate::derive;

/// Returns the offsets in the input of the fields in `let _ = &self.field;`.
fn mentioned(tokens: TokenStream, offsets: &mut Vec<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for window in tokens.windows(8) {
        let words: Vec<String> = window.iter().map(TokenTree::to_string).collect();
        if let ["let", "_", "=", "&", "self", ".", _, ";"] =
            words.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
        {
            offsets.push(window[6].span().byte_range().start);
        }
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            mentioned(group.stream(), offsets);
        }
    }
}

#[test]
fn fields_in_an_index_attribute_keep_their_spans() {
    let input = "#[index(town, desc(last_name), include = [phone])]
        #[index(each(tags), name = \"tagged\")]
        #[index(hash(text), name = \"texts\")]
        struct Customer {
            #[primary_key]
            id: u64,
            town: String,
            last_name: String,
            phone: String,
            tags: Vec<String>,
            text: String,
        }";
    let tokens: TokenStream = input.parse().expect("the input has tokens");
    // The offsets of a parsed string start after the strings that the thread has parsed before.
    let start =
        tokens.clone().into_iter().next().expect("there is a token").span().byte_range().start;
    let mut offsets = Vec::new();
    mentioned(derive(tokens), &mut offsets);
    for offset in &mut offsets {
        *offset -= start;
    }
    let words = ["town", "last_name", "phone", "tags", "text"];
    // The first occurrence of each word is in an attribute.
    let expected: Vec<_> =
        words.map(|word| input.find(word).expect("the input has the word")).into();
    assert_eq!(offsets, expected);
}
