//! The text of a field's type in the catalog.

use syn::visit_mut::{self, VisitMut};
use syn::{
    AngleBracketedGenericArguments, ParenthesizedGenericArguments, Path, Type, TypeFnPtr, TypeTuple,
};

use super::spelling::{peel, standard, text};

/// Returns the text of a type. It is normalized as far as possible in a macro, so that a file can be opened
/// after the source was reformatted.
pub(crate) fn declared(ty: &Type) -> String {
    let mut ty = ty.clone();
    Plain.visit_type_mut(&mut ty);
    text(ty)
}

/// Removes tokens that don't change the type.
struct Plain;

impl VisitMut for Plain {
    /// Replaces `(u32)` by `u32`, and `std::string::String` by `String`.
    fn visit_type_mut(&mut self, ty: &mut Type) {
        *ty = peel(ty).clone();
        if standard(ty).is_some()
            && let Type::Path(path) = ty
            && let Some(last) = path.path.segments.last()
        {
            path.path = Path::from(last.clone());
        }
        visit_mut::visit_type_mut(self, ty);
    }

    /// Replaces `(u8, u16,)` by `(u8, u16)`, but not `(u8,)` by `(u8)`.
    fn visit_type_tuple_mut(&mut self, tuple: &mut TypeTuple) {
        if tuple.elems.len() > 1 {
            tuple.elems.pop_punct();
        }
        visit_mut::visit_type_tuple_mut(self, tuple);
    }

    /// Replaces `Vec::<u8,>` by `Vec<u8>`.
    fn visit_angle_bracketed_generic_arguments_mut(
        &mut self,
        arguments: &mut AngleBracketedGenericArguments,
    ) {
        arguments.colon2_token = None;
        arguments.args.pop_punct();
        visit_mut::visit_angle_bracketed_generic_arguments_mut(self, arguments);
    }

    /// Replaces `Fn(u8,)` by `Fn(u8)`.
    fn visit_parenthesized_generic_arguments_mut(
        &mut self,
        arguments: &mut ParenthesizedGenericArguments,
    ) {
        arguments.inputs.pop_punct();
        visit_mut::visit_parenthesized_generic_arguments_mut(self, arguments);
    }

    /// Replaces `fn(u8,)` by `fn(u8)`.
    fn visit_type_fn_ptr_mut(&mut self, pointer: &mut TypeFnPtr) {
        pointer.inputs.pop_punct();
        visit_mut::visit_type_fn_ptr_mut(self, pointer);
    }
}

#[cfg(test)]
mod tests {
    use super::declared;

    #[track_caller]
    fn assert_declared(spellings: &[&str], text: &str) {
        for spelling in spellings {
            let ty = syn::parse_str(spelling).expect("it is a type");
            assert_eq!(declared(&ty), text, "{spelling}");
        }
    }

    #[test]
    fn a_trailing_comma_is_ignored() {
        assert_declared(&["HashMap<String, u8,>", "HashMap< String,u8 >"], "HashMap<String,u8>");
        assert_declared(&["(u8, (u16, u32,),)", "(u8,(u16,u32))"], "(u8,(u16,u32))");
        assert_declared(&["PhantomData<fn(u8,) -> u8,>"], "PhantomData<fn(u8)->u8>");
        assert_declared(&["Box<dyn Fn(u8,)>"], "Box<dyn Fn(u8)>");
    }

    #[test]
    fn a_tuple_of_one_element_keeps_its_comma() {
        assert_declared(&["(u8,)", "( u8 , )", "((u8),)"], "(u8,)");
        assert_declared(&["(u8)", "((u8))", "u8"], "u8");
        assert_declared(&["()"], "()");
    }

    #[test]
    fn parentheses_around_one_type_are_ignored() {
        assert_declared(&["(Option<(u32)>)", "Option<u32>"], "Option<u32>");
        assert_declared(&["[(u8); 4]", "[u8; 4]"], "[u8;4]");
    }

    #[test]
    fn standard_types_have_no_path() {
        assert_declared(
            &["String", "std::string::String", "::std::string::String", "alloc::string::String"],
            "String",
        );
        assert_declared(
            &["std::vec::Vec<core::option::Option<(std::primitive::u8)>>", "Vec::<Option<u8>>"],
            "Vec<Option<u8>>",
        );
        assert_declared(
            &["::std::collections::HashMap<std::string::String, u8, my::Hasher>"],
            "HashMap<String,u8,my::Hasher>",
        );
    }

    #[test]
    fn other_paths_are_kept() {
        for path in ["my::String", "std::time::Duration", "Self", "::other::vec::Vec<u8>"] {
            assert_declared(&[path], path);
        }
    }
}
