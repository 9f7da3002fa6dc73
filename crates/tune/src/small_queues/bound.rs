//! Settings that are already tighter stay as they are.
//!
//! A setting that others have made tighter than a target needs is left alone; one made by an entry
//! of ours for the same device is that entry's target, and gives way to the new one.

use crate::change::{Change, Link};
use crate::journal::Entry;

/// What a change sets, as numbers of which the smaller one is the tighter.
type Levels = [u64; 3];

const NO_LIMIT: Levels = [u64::MAX; 3];

/// Keeps a change from setting anything looser than it finds. Returns a sentence if the result is
/// not what was chosen.
pub(super) fn tighten(change: &mut Change, device: &Link, standing: &[Entry]) -> Option<String> {
    let chosen = after(change)?;
    let bound = bound(change, device, standing)?;
    let set = least(chosen, bound);
    if set == chosen {
        return None;
    }
    let wanted = change.words();
    set_to(change, set);
    Some(format!("{wanted} would loosen it: {}", change.words()))
}

/// Returns the bound: what was there before us, and what our other entries need.
fn bound(change: &Change, device: &Link, standing: &[Entry]) -> Option<Levels> {
    let present = before(change)?;
    let of_entry = |entry: &'_ Entry| {
        let same = entry.changes.iter().find(|other| other.same_thing(change))?;
        let elsewhere = !entry.changes.iter().any(|other| is_link(other, device));
        Some((before(same)?, after(same)?, elsewhere))
    };
    let ours: Vec<_> = standing.iter().filter_map(of_entry).collect();
    if ours.last().is_none_or(|(_, set, _)| *set != present) {
        return Some(present);
    }
    let mut bound = NO_LIMIT;
    for (place, (found, set, elsewhere)) in ours.iter().enumerate() {
        if !ours[..place].iter().any(|(_, older, _)| older == found) {
            bound = least(bound, *found);
        }
        if *elsewhere {
            bound = least(bound, *set);
        }
    }
    Some(bound)
}

fn is_link(change: &Change, device: &Link) -> bool {
    matches!(change, Change::Link(link) if link.netns == device.netns && link.index == device.index)
}

fn before(change: &Change) -> Option<Levels> {
    match change {
        Change::Sysctl(sysctl) => number(&sysctl.before),
        Change::Link(link) => Some(link.before.levels()),
        _ => None,
    }
}

fn after(change: &Change) -> Option<Levels> {
    match change {
        Change::Sysctl(sysctl) => number(&sysctl.after),
        Change::Link(link) => Some(link.after.levels()),
        _ => None,
    }
}

fn set_to(change: &mut Change, levels: Levels) {
    match change {
        Change::Sysctl(sysctl) => sysctl.after = levels[0].to_string(),
        Change::Link(link) => link.after = link.after.at(levels),
        _ => {}
    }
}

fn number(text: &str) -> Option<Levels> {
    Some([text.parse().ok()?, u64::MAX, u64::MAX])
}

fn least(a: Levels, b: Levels) -> Levels {
    [0, 1, 2].map(|at| a[at].min(b[at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::link::Trains;
    use crate::change::{Change, Sysctl};
    use crate::netns::NetNs;

    const DEFAULT: u64 = 4_194_304;

    fn netns() -> NetNs {
        NetNs { cookie: 1, name: None }
    }

    fn device(index: i32) -> Link {
        let trains =
            Trains { gso_max_bytes: 65_536, gso_ipv4_max_bytes: None, gso_max_segments: None };
        let name = format!("eth{index}");
        Link { netns: netns(), index, name, before: trains, after: trains }
    }

    fn limit(before: u64, after: u64) -> Change {
        let name = "net.ipv4.tcp_limit_output_bytes".to_owned();
        let (before, after) = (before.to_string(), after.to_string());
        Change::Sysctl(Sysctl { netns: netns(), name, before, after })
    }

    #[test]
    fn what_was_set_back_is_told_in_that_direction() {
        let told = limit(DEFAULT, 4092).words_back();
        assert_eq!(told, "net.ipv4.tcp_limit_output_bytes back to 4194304");
        let told = Change::Link(device(7)).words_back();
        assert!(told.ends_with(" of eth7 back to 65536"), "{told}");
    }

    fn entry(of: i32, change: Change) -> Entry {
        let mut entry = Entry::new(1, String::new());
        entry.changes = vec![change, Change::Link(device(of))];
        entry
    }

    /// Returns what a run sets that finds this, and whether it reports it.
    fn set(present: u64, chosen: u64, standing: &[Entry]) -> (u64, bool) {
        let mut change = limit(present, chosen);
        let said = tighten(&mut change, &device(1), standing);
        (after(&change).unwrap()[0], said.is_some())
    }

    #[test]
    fn what_is_looser_is_tightened_and_what_is_tighter_is_left() {
        assert_eq!(set(DEFAULT, 6000, &[]), (6000, false));
        assert_eq!(set(2000, 6000, &[]), (2000, true));
        assert_eq!(set(6000, 6000, &[]), (6000, false));
    }

    #[test]
    fn a_new_target_of_the_same_device_takes_the_place_of_the_old() {
        let first = || entry(1, limit(DEFAULT, 6000));
        assert_eq!(set(6000, 50_000, &[first()]), (50_000, false));
        assert_eq!(set(6000, 2000, &[first()]), (2000, false));
        let second = entry(1, limit(6000, 50_000));
        assert_eq!(set(50_000, 9_000_000, &[first(), second]), (DEFAULT, true));
        // A value tighter than the first entry's must not be loosened by the second.
        let left = entry(1, limit(2000, 2000));
        assert_eq!(set(2000, 50_000, &[left]), (2000, true));
    }

    #[test]
    fn what_somebody_has_set_in_between_and_other_devices_need_stands() {
        assert_eq!(set(3000, 50_000, &[entry(1, limit(DEFAULT, 6000))]), (3000, true));
        let between = [entry(1, limit(DEFAULT, 6000)), entry(1, limit(20_000, 7000))];
        assert_eq!(set(7000, 50_000, &between), (20_000, true));
        assert_eq!(set(6000, 50_000, &[entry(2, limit(DEFAULT, 6000))]), (6000, true));
        assert_eq!(set(6000, 2000, &[entry(2, limit(DEFAULT, 6000))]), (2000, false));
    }
}
