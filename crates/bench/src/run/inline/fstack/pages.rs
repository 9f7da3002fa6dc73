//! Huge pages, which the two processes of F-Stack share: taken from the kernel, and given back.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::outcome::Skip;
use crate::process::Keeper;
use crate::roles::Duty;

/// The kernel's pool of 2 MiB pages.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Ensures that so many are free; the old number is in the keeper's duties before.
pub(super) fn lend(pages: u64, keeper: &mut Keeper) -> Result<()> {
    lend_from(Path::new(POOL), pages, |duty| keeper.take(duty))
}

fn lend_from(pool: &Path, pages: u64, note: impl FnOnce(&Duty) -> Result<()>) -> Result<()> {
    let free = || number(&pool.join("free_hugepages"));
    let lacks = pages.saturating_sub(free()?);
    if lacks == 0 {
        return Ok(());
    }
    let file = pool.join("nr_hugepages");
    let had = number(&file)?;
    note(&Duty::Write { file: file.clone(), word: had.to_string() })?;
    let wanted = (had + lacks).to_string();
    fs::write(&file, wanted).with_context(|| format!("writing {}", file.display()))?;
    // The kernel provides what it finds contiguous, without an error for the rest.
    let got = free()?;
    if got < pages {
        let why = format!("F-Stack needs {pages} huge pages of 2 MiB, and the kernel finds {got}");
        return Err(Skip::new(why).into());
    }
    Ok(())
}

fn number(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("{} (CONFIG_HUGETLBFS)", file.display()))?;
    text.trim().parse().with_context(|| format!("understanding {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is noted and what the pool contains afterwards, if that many pages are free and that many are requested.
    fn lent((had, free): (u64, u64), pages: u64) -> (Result<()>, Option<String>, String) {
        let name = format!("bench-pages-{}-{had}-{free}-{pages}", std::process::id());
        let pool = std::env::temp_dir().join(name);
        fs::create_dir(&pool).unwrap();
        let file = pool.join("nr_hugepages");
        fs::write(&file, format!("{had}\n")).unwrap();
        fs::write(pool.join("free_hugepages"), format!("{free}\n")).unwrap();
        let mut noted = None;
        let result = lend_from(&pool, pages, |duty| {
            let Duty::Write { word, .. } = duty else { panic!("{duty:?}") };
            // Before anything is changed.
            assert_eq!(number(&file).unwrap(), had);
            noted = Some(word.clone());
            Ok(())
        });
        let stands = fs::read_to_string(&file).unwrap();
        fs::remove_dir_all(&pool).unwrap();
        (result, noted, stands)
    }

    #[test]
    fn only_what_is_lacking_is_asked_for_and_what_was_there_is_noted() {
        let (result, noted, stands) = lent((70, 60), 60);
        assert!(result.is_ok() && noted.is_none(), "{result:?}");
        assert_eq!(stands, "70\n");
        // This pool provides nothing, like a kernel without contiguous memory.
        let (result, noted, stands) = lent((70, 60), 100);
        assert_eq!((noted, stands), (Some("70".to_owned()), "110".to_owned()));
        let error = result.unwrap_err();
        assert!(error.is::<Skip>() && error.to_string().contains("finds 60"), "{error}");
    }
}
