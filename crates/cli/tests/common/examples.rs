//! The command lines in the documents: fenced blocks and code spans of Markdown, examples and bold
//! words of man pages.

use std::fs;
use std::path::{Path, PathBuf};

/// A line of a document that shows commands, and its place.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// `FILE:LINE`.
    pub(crate) place: String,
    /// The line as a user would type it.
    pub(crate) line: String,
    /// Whether it is a complete example; otherwise a sentence mentions it, perhaps in part.
    pub(crate) whole: bool,
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Returns all command lines that the documents show.
pub(crate) fn all() -> Vec<Shown> {
    let root = repository();
    let mut shown = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).unwrap();
        let place = path.strip_prefix(&root).unwrap().display().to_string();
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        shown.extend(if is_markdown { markdown(&place, &text) } else { roff(&place, &text) });
    }
    shown
}

/// Lists the documents: Markdown of the whole repository, man pages and their sources.
pub(crate) fn files() -> Vec<PathBuf> {
    let root = repository();
    let mut files = Vec::new();
    let mut directories = vec![
        (root.clone(), "md"),
        (root.join("docs"), "md"),
        (root.join("man"), "1"),
        (root.join("crates/cli/man"), "roff"),
    ];
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        directories.push((entry.unwrap().path(), "md"));
    }
    for (directory, extension) in directories {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns fenced blocks line by line, and the code spans between them.
fn markdown(place: &str, text: &str) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut prose = String::new();
    let mut prose_from = 1;
    let mut fenced = false;
    let mut begun = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            shown.extend(spans(place, prose_from, &prose));
            prose.clear();
            prose_from = number + 1;
        } else if fenced {
            begun += line.trim();
            if let Some(more) = begun.strip_suffix('\\') {
                begun = more.to_owned();
                continue;
            }
            let line = std::mem::take(&mut begun);
            shown.push(Shown { place: format!("{place}:{number}"), line, whole: true });
        } else {
            prose += line;
            prose.push('\n');
        }
    }
    assert!(!fenced, "{place}: a fence that is not closed");
    shown.extend(spans(place, prose_from, &prose));
    shown
}

/// Returns the text between single backticks.
fn spans(place: &str, from: usize, prose: &str) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut number = from;
    for (index, part) in prose.split('`').enumerate() {
        if index % 2 == 1 {
            let line = part.split_whitespace().collect::<Vec<_>>().join(" ");
            shown.push(Shown { place: format!("{place}:{number}"), line, whole: false });
        }
        number += part.matches('\n').count();
    }
    shown
}

/// Returns examples (`.EX` to `.EE`), and text in bold.
fn roff(place: &str, text: &str) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut example = false;
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{place}:{number}");
        match line.split_whitespace().next() {
            Some(".EX" | ".nf") => example = true,
            Some(".EE" | ".fi") => example = false,
            _ if example => shown.push(Shown { place, line: plain(line), whole: true }),
            Some(".B" | ".BR" | ".BI") => {
                // A quoted argument is one command line.
                if let Some(quoted) = line.split('"').nth(1) {
                    shown.push(Shown { place, line: plain(quoted), whole: false });
                }
            }
            _ => {}
        }
    }
    shown
}

/// Removes those escapes of groff_man(7) that our pages use.
pub(crate) fn plain(line: &str) -> String {
    let mut text = line.to_owned();
    for (escape, character) in
        [("\\-", "-"), ("\\(aq", "'"), ("\\*(Aq", "'"), ("\\(bu", "*"), ("\\fB", ""), ("\\fI", "")]
    {
        text = text.replace(escape, character);
    }
    text.replace("\\fR", "").replace("\\&", "").replace("\\e", "\\")
}

/// Splits a shell line into its commands: each a list of words without redirections and leading
/// assignments. Those in `$(…)` count as commands, too; their output is taken as `1`.
pub(crate) fn commands(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut words = Vec::new();
    let mut characters = line.chars().peekable();
    let mut redirected = false;
    loop {
        while characters.next_if(|next| next.is_whitespace()).is_some() {}
        let Some(&next) = characters.peek() else { break };
        match next {
            '#' => break,
            '|' | ';' | '&' => {
                characters.next();
                found.push(std::mem::take(&mut words));
            }
            '<' | '>' => {
                characters.next();
                redirected = true;
            }
            _ => {
                let (word, inner) = word(&mut characters);
                found.extend(inner.iter().flat_map(|inner| commands(inner)));
                if !std::mem::take(&mut redirected) {
                    words.push(word);
                }
            }
        }
    }
    found.push(words);
    for words in &mut found {
        let is_assignment = |word: &&String| {
            word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty()
                    && name.chars().all(|c| c.is_ascii_uppercase() || "_0123456789".contains(c))
            })
        };
        let assignments = words.iter().take_while(is_assignment).count();
        words.drain(..assignments);
    }
    found.retain(|words| !words.is_empty());
    found
}

/// Returns the next word, and the command substitutions in it.
fn word(characters: &mut std::iter::Peekable<std::str::Chars>) -> (String, Vec<String>) {
    let (mut word, mut inner) = (String::new(), Vec::new());
    let mut quote = None;
    while let Some(&next) = characters.peek() {
        match (quote, next) {
            (None, ' ' | '\t' | '|' | ';' | '&' | '<' | '>') => break,
            (None, '\'' | '"') => quote = Some(next),
            (Some(open), _) if open == next => quote = None,
            (None | Some('"'), '$') => {
                characters.next();
                if characters.next_if_eq(&'(').is_some() {
                    inner.push(characters.by_ref().take_while(|&c| c != ')').collect());
                    word.push('1');
                } else {
                    word.push('$');
                }
                continue;
            }
            _ => word.push(next),
        }
        characters.next();
    }
    (word, inner)
}
