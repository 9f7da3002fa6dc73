use super::*;
use crate::kernel::Corrections;
use proptest::prelude::*;

const SETTING: Setting = Setting {
    round_trip: Duration::from_micros(50),
    late_after: Duration::from_millis(20),
    segment_bytes: Some(1024),
    pause: Duration::from_millis(100),
};

fn sample(us: u64) -> Sample {
    Sample { delay: Duration::from_micros(us), shares_ack: false, receiver_segments: 0 }
}

fn samples(parts: &[(usize, u64)]) -> Vec<Sample> {
    parts.iter().flat_map(|(times, us)| vec![sample(*us); *times]).collect()
}

fn verdict(parts: &[(usize, u64)]) -> Verdict {
    judge(&samples(parts), &SETTING)
}

fn spoken(mut samples: Vec<Sample>, segments: u32) -> Vec<Sample> {
    samples.iter_mut().skip(1).for_each(|sample| sample.receiver_segments = segments);
    samples
}

#[test]
fn the_published_run_before_the_corrections() {
    let verdict = verdict(&[(16, 100), (83, 40_000)]);
    assert_eq!(verdict.kind, Kind::QuickThenLate);
    assert_eq!((verdict.quick_at_first, verdict.late, verdict.acks), (16, 83, 99));
    assert!(verdict.credits_spent);
    assert_eq!(
        verdict.to_string(),
        "ACKs 1 to 16 in 0.100 ms, from 17 on 40.0 ms: quick-ACK credits spent"
    );
    // The receiver does not send, so its way of counting cannot be determined.
    assert_eq!(verdict.credit_counting, Side::Unknown);
    assert_eq!(verdict.mss_boundary, Side::Unknown);
}

#[test]
fn the_published_run_after_the_corrections() {
    let verdict = verdict(&[(99, 100)]);
    assert_eq!((verdict.kind, verdict.mss_boundary), (Kind::QuickThroughout, Side::After));
    assert_eq!(verdict.credit_counting, Side::Unknown);
    assert_eq!(
        verdict.to_string(),
        "all 99 ACKs in 0.100 ms: quick throughout, beyond any credits"
    );
}

#[test]
fn small_or_varied_segments_say_nothing_about_the_boundary() {
    for segment_bytes in [None, Some(100), Some(535)] {
        let setting = Setting { segment_bytes, ..SETTING };
        let verdict = judge(&samples(&[(99, 100)]), &setting);
        assert_eq!(verdict.mss_boundary, Side::Unknown, "{segment_bytes:?}");
    }
}

#[test]
fn credits_that_are_renewed_say_nothing_about_the_boundary() {
    let setting = Setting { pause: Duration::from_millis(300), ..SETTING };
    let verdict = judge(&samples(&[(99, 100)]), &setting);
    assert_eq!((verdict.kind, verdict.mss_boundary), (Kind::QuickThroughout, Side::Unknown));
    assert!(verdict.to_string().contains("bring new quick-ACK credits"), "{verdict}");
}

#[test]
fn late_from_the_first_ack() {
    let verdict = verdict(&[(50, 40_000)]);
    assert_eq!((verdict.kind, verdict.quick_at_first), (Kind::LateThroughout, 0));
    assert_eq!(verdict.to_string(), "50 of 50 ACKs after 40.0 ms: delayed from the first");
    assert!(!verdict.credits_spent);
}

#[test]
fn a_small_window_grants_fewer_credits() {
    // tcp_incr_quickack: rcv_wnd / (2 * rcv_mss), at least 2.
    for credits in [1, 2, 7, 15, 16, 17, 18, 24] {
        let verdict = verdict(&[(credits, 80), (9, 40_000)]);
        assert_eq!(verdict.kind, Kind::QuickThenLate, "{credits}");
        assert_eq!((verdict.quick_at_first, verdict.credits_spent), (credits, true));
    }
    let one = verdict(&[(1, 80), (9, 40_000)]);
    assert_eq!(one.to_string(), "ACK 1 in 0.080 ms, from 2 on 40.0 ms: quick-ACK credits spent");
}

#[test]
fn what_turns_late_beyond_the_credits_is_not_credits() {
    for quick in [25, 40] {
        let verdict = verdict(&[(quick, 100), (40, 40_000)]);
        assert_eq!((verdict.kind, verdict.credits_spent), (Kind::QuickThenLate, false));
        assert!(verdict.to_string().contains("not for credits"), "{verdict}");
    }
}

#[test]
fn one_exception_in_a_late_tail_does_not_hide_the_turn() {
    let verdict = verdict(&[(16, 100), (20, 40_000), (1, 90), (20, 40_000)]);
    assert_eq!((verdict.kind, verdict.quick_at_first), (Kind::QuickThenLate, 16));
    assert_eq!(verdict.late, 40);
}

#[test]
fn late_now_and_then() {
    let verdict = verdict(&[(30, 100), (1, 40_000), (30, 100), (2, 41_000), (30, 100)]);
    assert_eq!((verdict.kind, verdict.late), (Kind::LateNowAndThen, 3));
    assert_eq!(verdict.late_median_us, Some(41_000));
    assert_eq!(verdict.to_string(), "3 of 93 ACKs after 41.0 ms, the others in 0.100 ms");
}

#[test]
fn too_few_to_tell() {
    for parts in [&[][..], &[(1, 100)], &[(27, 100)], &[(1, 40_000)], &[(2, 40_000)]] {
        let verdict = verdict(parts);
        assert_eq!(verdict.kind, Kind::TooFew, "{parts:?}");
    }
    assert_eq!(verdict(&[]).to_string(), "no ACK was timed: nothing to tell");
    assert!(verdict(&[(16, 100)]).to_string().starts_with("16 ACKs, 0 of them late: too few"));
    assert_eq!(verdict(&[(28, 100)]).kind, Kind::QuickThroughout);
    assert_eq!(verdict(&[(16, 100), (2, 40_000)]).kind, Kind::TooFew);
    assert_eq!(verdict(&[(16, 100), (3, 40_000)]).kind, Kind::QuickThenLate);
}

#[test]
fn late_is_measured_from_the_round_trip() {
    let setting = Setting { round_trip: Duration::from_millis(80), ..SETTING };
    let far = judge(&samples(&[(99, 80_300)]), &setting);
    assert_eq!(far.kind, Kind::QuickThroughout);
    let late = judge(&samples(&[(16, 80_300), (40, 120_300)]), &setting);
    assert_eq!((late.kind, late.quick_at_first), (Kind::QuickThenLate, 16));
}

#[test]
fn several_segments_for_an_ack() {
    let pair = [sample(10_100), Sample { shares_ack: true, ..sample(90) }];
    let list: Vec<_> = pair.iter().copied().cycle().take(100).collect();
    let verdict = judge(&list, &SETTING);
    assert_eq!(verdict.kind, Kind::SeveralPerAck);
    assert_eq!((verdict.segments, verdict.acks, verdict.shared), (100, 50, 50));
    assert_eq!(
        verdict.to_string(),
        "100 segments in 50 ACKs, in 10.1 ms: one ACK for several segments"
    );
    // The credits first: each segment has its own ACK.
    let list: Vec<_> = samples(&[(16, 100)]).into_iter().chain(list).collect();
    let verdict = judge(&list, &SETTING);
    assert_eq!((verdict.kind, verdict.quick_at_first), (Kind::SeveralPerAck, 16));
}

#[test]
fn an_ack_for_several_is_as_late_as_for_the_one_that_waited_longest() {
    let late = [sample(40_000), Sample { shares_ack: true, ..sample(5000) }];
    let list: Vec<_> =
        samples(&[(16, 100)]).into_iter().chain(late.iter().copied().cycle().take(20)).collect();
    let verdict = judge(&list, &SETTING);
    assert_eq!((verdict.kind, verdict.late), (Kind::QuickThenLate, 10));
    assert_eq!(verdict.late_median_us, Some(40_000));
}

#[test]
fn a_receiver_that_speaks_shows_how_it_counts() {
    for (quick, segments, side) in [
        (16, 9, Side::After),
        (18, 9, Side::After),
        (16, 5, Side::After),
        (7, 9, Side::Before),
        (9, 9, Side::Before),
        (11, 5, Side::Before),
        (1, 15, Side::Before),
        (1, 30, Side::Before),
        // It sent too little, or lost some credits but not all: a small window, perhaps.
        (16, 4, Side::Unknown),
        (13, 3, Side::Unknown),
        (12, 9, Side::Unknown),
        (4, 9, Side::Unknown),
    ] {
        let list = spoken(samples(&[(quick, 100), (30, 40_000)]), segments);
        // What was sent after the first ACK is known from the second on.
        let list = if quick == 1 {
            list.into_iter().map(|it| Sample { receiver_segments: segments, ..it }).collect()
        } else {
            list
        };
        let verdict = judge(&list, &SETTING);
        assert_eq!(verdict.credit_counting, side, "{quick} quick, {segments} sent");
    }
}

#[test]
fn what_is_said_after_the_turn_does_not_count() {
    let mut list = samples(&[(16, 100), (30, 40_000)]);
    list.iter_mut().skip(20).for_each(|sample| sample.receiver_segments = 9);
    let verdict = judge(&list, &SETTING);
    assert_eq!((verdict.receiver_segments, verdict.credit_counting), (9, Side::Unknown));
}

#[test]
fn the_remarks_say_what_is_known_and_no_more() {
    let here = Corrections { credit_counting: Side::After, mss_boundary: Side::Unknown };
    let list = spoken(samples(&[(16, 100), (30, 40_000)]), 9);
    let [counting, boundary, local] =
        judge(&list, &SETTING).remarks(here).try_into().expect("three remarks");
    assert!(counting.contains("sent 9 segments") && counting.contains("since commit 059217c18be6"));
    assert!(boundary.contains("reads late, or its kernel is older than commit 4720852ed9af"));
    assert!(local.contains("059217c18be6 yes, 4720852ed9af cannot be told"), "{local}");
    // Segments smaller than any MSS are acknowledged on reading by every kernel.
    let small = Setting { segment_bytes: Some(500), ..SETTING };
    let small = judge(&samples(&[(16, 100), (30, 40_000)]), &small).remarks(here);
    assert!(small[0].starts_with("the receiver reads late: "), "{small:?}");
    let late = verdict(&[(50, 40_000)]).remarks(here);
    assert_eq!(late.len(), 1, "{late:?}");
}

fn any_sample() -> impl Strategy<Value = Sample> {
    (0..300_000_u64, any::<bool>(), 0..20_u32).prop_map(|(us, shares_ack, receiver_segments)| {
        Sample { delay: Duration::from_micros(us), shares_ack, receiver_segments }
    })
}

proptest! {
    #[test]
    fn counts_add_up_and_words_are_found(list in prop::collection::vec(any_sample(), 0..200)) {
        let verdict = judge(&list, &SETTING);
        prop_assert_eq!(verdict.segments, list.len());
        prop_assert!(verdict.acks <= list.len());
        prop_assert!(verdict.quick_at_first + verdict.late + verdict.shared <= verdict.acks);
        prop_assert_eq!(verdict.acks == 0, list.is_empty());
        prop_assert_eq!(verdict.late_median_us.is_some(), verdict.late > 0);
        prop_assert!(!verdict.credits_spent || verdict.quick_at_first <= MOST_ON_CREDITS);
        prop_assert!(!verdict.to_string().contains(" - ms"));
    }

    #[test]
    fn a_longer_way_changes_the_times_and_nothing_else(
        list in prop::collection::vec(any_sample(), 0..100),
        way in 0..200_000_u64,
    ) {
        let way = Duration::from_micros(way);
        let far: Vec<_> =
            list.iter().map(|it| Sample { delay: it.delay + way, ..*it }).collect();
        let near = judge(&list, &SETTING);
        let setting = Setting { round_trip: SETTING.round_trip + way, ..SETTING };
        let far = judge(&far, &setting);
        prop_assert_eq!((near.kind, near.late, near.quick_at_first, near.credit_counting),
            (far.kind, far.late, far.quick_at_first, far.credit_counting));
    }

    #[test]
    fn spent_credits_are_found_where_they_are_spent(
        quick in prop::collection::vec(0..15_000_u64, 1..=MOST_CREDITS),
        late in prop::collection::vec(36_000..60_000_u64, FEWEST..100),
    ) {
        let list: Vec<_> = quick.iter().chain(&late).map(|us| sample(*us)).collect();
        let verdict = judge(&list, &SETTING);
        prop_assert_eq!(verdict.kind, Kind::QuickThenLate);
        prop_assert!(verdict.credits_spent);
        prop_assert_eq!((verdict.quick_at_first, verdict.late), (quick.len(), late.len()));
    }
}
