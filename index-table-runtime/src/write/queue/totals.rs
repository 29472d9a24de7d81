//! The changes of the totals of eventual aggregates, as bytes in messages.

/// One row that is added to a group, or removed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TotalsChange<'a> {
    pub(crate) is_added: bool,
    pub(crate) group: &'a [u8],
    pub(crate) summands: &'a [u8],
}

/// Encodes a change: whether the row is added, the length of the group as two bytes, the group, and the summands.
pub(crate) fn encode(TotalsChange { is_added, group, summands }: TotalsChange<'_>) -> Vec<u8> {
    // The length of a group is limited, like that of any key.
    let len = u16::try_from(group.len()).unwrap_or(u16::MAX);
    [&[u8::from(is_added)][..], &len.to_be_bytes(), group, summands].concat()
}

/// Decodes a change; `None` if the bytes are invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<TotalsChange<'_>> {
    let (is_added, rest) = bytes.split_first()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (group, summands) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
    (*is_added <= 1).then_some(TotalsChange { is_added: *is_added == 1, group, summands })
}

#[cfg(test)]
mod tests {
    use super::{TotalsChange, decode, encode};

    #[test]
    fn changes_have_the_bytes_of_the_format() {
        let summands = 5_i128.to_be_bytes();
        let change = TotalsChange { is_added: true, group: &[7], summands: &summands };
        let bytes = encode(change);
        assert_eq!(bytes, [&[1, 0, 1, 7][..], &[0; 15], &[5]].concat());
        assert_eq!(decode(&bytes), Some(change));
        let change = TotalsChange { is_added: false, group: &[0], summands: &[] };
        assert_eq!(encode(change), [0, 0, 1, 0]);
        for damaged in [&[][..], &[1], &[1, 0], &[1, 0, 2, 7], &[2, 0, 1, 7]] {
            assert_eq!(decode(damaged), None);
        }
    }
}
