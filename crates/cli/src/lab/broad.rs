//! Tables that are wider than a terminal: broken between groups of columns, never within a word.

use crate::tables::{Width, lines, table};

/// What a column needs besides its widest cell.
const PADDING: usize = 2;

/// A table with names in its first column and figures in all others.
pub(super) struct Broad<'a> {
    /// The heading of the names.
    pub(super) names: &'a str,
    /// Headings of the figures; a group stays together where it fits.
    pub(super) groups: &'a [&'a [&'a str]],
    /// A name and a figure for each heading.
    pub(super) rows: Vec<Vec<String>>,
    /// Whether the figures are words, which are left-aligned.
    pub(super) words: bool,
}

impl Broad<'_> {
    /// Renders as few tables below each other as fit, each with the names.
    pub(super) fn render(&self, width: Width) -> String {
        let blocks = self.blocks(width.columns().map(usize::from));
        let parts: Vec<String> = blocks.iter().map(|block| self.block(block, width)).collect();
        parts.join("\n")
    }

    /// Returns which figures are placed side by side.
    fn blocks(&self, room: Option<usize>) -> Vec<Vec<usize>> {
        let names = self.wide(0, self.names);
        let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
        let mut taken = names;
        let mut first = 1;
        for group in self.groups {
            let wide: Vec<usize> =
                group.iter().enumerate().map(|(n, head)| self.wide(first + n, head)).collect();
            let fits = |taken: usize, more: usize| room.is_none_or(|room| taken + more <= room);
            // A group that fits nowhere also begins a block of its own, and is broken there.
            let mut begin_new = !fits(taken, wide.iter().sum());
            for (n, wide) in wide.into_iter().enumerate() {
                let is_empty = blocks.last().is_some_and(Vec::is_empty);
                if !is_empty && (begin_new || !fits(taken, wide)) {
                    blocks.push(Vec::new());
                    taken = names;
                }
                begin_new = false;
                taken += wide;
                if let Some(block) = blocks.last_mut() {
                    block.push(first + n);
                }
            }
            first += group.len();
        }
        blocks
    }

    fn wide(&self, column: usize, heading: &str) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        let widest = cells.chain(heading.lines()).map(|text| text.chars().count()).max();
        widest.unwrap_or(0) + PADDING
    }

    fn block(&self, columns: &[usize], width: Width) -> String {
        let headings: Vec<&str> = self.groups.iter().copied().flatten().copied().collect();
        let picked = columns.iter().filter_map(|column| headings.get(column - 1).copied());
        let header: Vec<&str> = std::iter::once(self.names).chain(picked).collect();
        let right: Vec<usize> = (1..=columns.len()).filter(|_| !self.words).collect();
        let mut table = table(&header, &right, width);
        let begins = columns.first() == Some(&1);
        for row in &self.rows {
            let cell = |column: &usize| row.get(*column).is_some_and(|cell| !cell.is_empty());
            // A heading has no figures in any block; a row without any in this one has been shown above.
            if !begins && row.len() > 1 && !columns.iter().any(cell) {
                continue;
            }
            let cells = std::iter::once(&0).chain(columns);
            table.add_row(cells.map(|column| row.get(*column).cloned().unwrap_or_default()));
        }
        lines(&table)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Asserts that nothing is broken: lines fit, and each of these words is whole.
    pub(in crate::lab) fn assert_whole(text: &str, columns: usize, words: &[String]) {
        for line in text.lines() {
            assert!(line.chars().count() <= columns, "{line:?} in\n{text}");
        }
        for word in words {
            assert!(text.contains(word.as_str()), "{word:?} is not in\n{text}");
        }
    }

    fn broad(groups: &'static [&'static [&'static str]]) -> Broad<'static> {
        let row = |name: &str| {
            let figures = groups.iter().flat_map(|group| group.iter());
            let cells = figures.map(|heading| format!("{heading}=1234"));
            std::iter::once(name.to_owned()).chain(cells).collect()
        };
        let rows = vec![row("this kernel"), row("limit of 2012")];
        Broad { names: "setting", groups, rows, words: false }
    }

    #[test]
    fn where_there_is_room_it_is_one_table() {
        let text = broad(&[&["a", "b"], &["c"]]).render(Width::fixed(None, false));
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn groups_stay_together_and_each_table_has_the_names() {
        let text = broad(&[&["a", "b"], &["c", "d"]]).render(Width::fixed(Some(40), false));
        assert_eq!(text.matches("limit of 2012").count(), 2, "{text}");
        let first = text.lines().next().unwrap();
        assert!(first.ends_with('b') && !first.contains('c'), "{text}");
        assert_whole(&text, 40, &["a", "b", "c", "d"].map(|head| format!("{head}=1234")));
    }

    #[test]
    fn a_row_without_figures_stands_in_the_first_table_only_and_a_heading_in_all() {
        let mut broad = broad(&[&["a", "b"], &["c", "d"]]);
        broad.rows.insert(0, vec!["heading".to_owned()]);
        broad.rows.push(vec!["bare".to_owned(), "1".to_owned()]);
        broad.rows[3].resize(5, String::new());
        let text = broad.render(Width::fixed(Some(40), false));
        let lines = |name: &str| text.lines().filter(|line| line.trim().starts_with(name)).count();
        assert_eq!((lines("heading"), lines("bare")), (2, 1), "{text}");
    }

    #[test]
    fn a_group_that_fits_nowhere_is_broken_between_columns() {
        let text = broad(&[&["a", "b", "c", "d", "e"]]).render(Width::fixed(Some(40), false));
        assert_eq!(text.matches("limit of 2012").count(), 2, "{text}");
        assert_whole(&text, 40, &["a", "b", "c", "d", "e"].map(|head| format!("{head}=1234")));
    }
}
