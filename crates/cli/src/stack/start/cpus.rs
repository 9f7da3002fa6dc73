//! The processors on which instances run.

use std::fs;
use std::str::FromStr;

/// Numbers of processors, in the order given: the first is the first instance's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cpus(pub(super) Vec<usize>);

/// More than any machine has, and few enough for a list to be shown.
const MOST: usize = 8192;

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let no = || format!("{text:?} is no list of processors such as 2,4-6");
        let mut all = Vec::new();
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |word: &str| word.trim().parse::<usize>().ok().filter(|it| *it < MOST);
            let (first, last) = number(first).zip(number(last)).ok_or_else(no)?;
            if last < first {
                return Err(no());
            }
            for at in first..=last {
                if all.contains(&at) {
                    return Err(format!("{text:?} names processor {at} twice"));
                }
                all.push(at);
            }
        }
        Ok(Self(all))
    }
}

impl Cpus {
    /// Returns consecutive processors.
    pub(super) fn from(first: usize, count: u32) -> Self {
        Self((first..).take(count as usize).collect())
    }

    /// Checks that there is one for each instance.
    ///
    /// # Errors
    ///
    /// A sentence, if there are too few, or one does not exist.
    pub(super) fn check(&self, instances: u32) -> Result<(), String> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        self.check_among(instances, Self::from_str(online.trim()).ok().as_ref())
    }

    fn check_among(&self, instances: u32, online: Option<&Self>) -> Result<(), String> {
        let (given, wanted) = (self.0.len(), instances as usize);
        if given < wanted {
            return Err(format!(
                "{wanted} instances need a processor each, and --cpus names {given}: name more, or none"
            ));
        }
        let is_there = |at: &usize| online.is_none_or(|online| online.0.contains(at));
        match self.0.iter().find(|at| !is_there(at)) {
            Some(at) => Err(format!(
                "there is no processor {at}, or it is off: cat /sys/devices/system/cpu/online lists those that \
                 there are"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<usize>, String> {
        text.parse().map(|Cpus(all)| all)
    }

    #[test]
    fn processors_keep_their_order_and_each_is_named_once() {
        assert_eq!(read("2,4-6").unwrap(), [2, 4, 5, 6]);
        assert_eq!(read("7").unwrap(), [7]);
        assert_eq!(read("3-3, 0").unwrap(), [3, 0]);
        for wrong in ["", ",", "1,", "x", "6-4", "-1", "1-", "1-2-3", "9999999"] {
            assert!(read(wrong).unwrap_err().contains("is no list of processors"), "{wrong}");
        }
        assert_eq!(read("1-3,2").unwrap_err(), "\"1-3,2\" names processor 2 twice");
        assert_eq!(Cpus::from(2, 3).0, [2, 3, 4]);
    }

    #[test]
    fn each_instance_has_a_processor_that_is_there() {
        let online = Cpus::from(0, 4);
        let check = |text: &str, instances| {
            text.parse::<Cpus>().unwrap().check_among(instances, Some(&online))
        };
        assert_eq!(check("2-3", 2), Ok(()));
        assert_eq!(check("2-3", 1), Ok(()));
        let few = check("2-3", 3).unwrap_err();
        assert!(few.starts_with("3 instances need a processor each, and --cpus names 2"), "{few}");
        let absent = check("2,4", 2).unwrap_err();
        assert!(absent.starts_with("there is no processor 4, or it is off"), "{absent}");
        assert_eq!(Cpus::from(4, 1).check_among(1, None), Ok(()), "nothing is known");
    }
}
