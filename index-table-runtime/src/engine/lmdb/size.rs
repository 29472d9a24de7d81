//! Sizes of the map.

use super::process;
use crate::engine::{DEFAULT_MAP_SIZE, Options};

/// Returns the initial size of the map. If the options have the default or the largest size, the map leaves address
/// space for as many further stores as are open, and for the rest of the program.
pub(super) fn map_size(options: &Options, others: usize) -> usize {
    const LEAST: usize = 1 << 26;
    let mut size = page_multiple(options.map_size);
    if matches!(options.map_size, DEFAULT_MAP_SIZE | usize::MAX) {
        let shares = others.saturating_add(2);
        while size > LEAST && !process::has_address_space(size.saturating_mul(shares)) {
            size = page_multiple(size / 2);
        }
    }
    size.min(max_map_size(options))
}

/// Returns the maximum size of the map, in whole pages: at most the value of the options, but at least one page.
pub(super) fn max_map_size(options: &Options) -> usize {
    let page = process::page_size();
    (options.max_map_size - options.max_map_size % page).max(page)
}

/// Rounds up to whole pages of the operating system, which heed requires. The last page of the address space is left
/// out.
pub(super) fn page_multiple(size: usize) -> usize {
    let page = process::page_size();
    size.max(page).checked_next_multiple_of(page).unwrap_or(size - size % page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_sizes_are_whole_pages() {
        let page = process::page_size();
        assert_eq!(page_multiple(0), page);
        assert_eq!(page_multiple(page + 1), 2 * page);
        assert_eq!(page_multiple(1 << 30), 1 << 30);
        assert_eq!(page_multiple(usize::MAX), usize::MAX - (page - 1));
        let at_most = |size| max_map_size(&Options::default().max_map_size(size));
        assert_eq!(at_most(0), page);
        assert_eq!(at_most(3 * page - 1), 2 * page);
        assert_eq!(at_most(3 * page), 3 * page);
        assert_eq!(at_most(usize::MAX), usize::MAX - (page - 1));
    }

    #[test]
    fn maps_are_no_larger_than_the_limit_and_the_address_space() {
        let largest = map_size(&Options::default().map_size(usize::MAX), 0);
        assert!(process::has_address_space(largest));
        let default = Options::default();
        assert_eq!(map_size(&default.clone().max_map_size(1 << 20), 0), 1 << 20);
        assert_eq!(map_size(&default.map_size(1 << 18).max_map_size(1 << 20), 0), 1 << 18);
    }
}
