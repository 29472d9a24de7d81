use std::ops::RangeBounds;

/// [`RangeBounds`], with an error that shows the syntax of a range of a field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of `{T}`",
    label = "is not a range of `{T}`",
    note = "a range is one argument: `from..to`, `from..=to`, `from..` or `..=to`, with bounds of type `{T}`",
    note = "a range of strings has `&str` bounds: `from.as_str()..to.as_str()` for a `String` or \
            a `&String`"
)]
pub trait RangeOf<T>: RangeBounds<T> {}

#[diagnostic::do_not_recommend]
impl<T, R: RangeBounds<T>> RangeOf<T> for R {}
