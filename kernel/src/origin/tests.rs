//! Origins against a plain list of names.

use super::{Origin, Origins, Partition};
use arrow::array::{BooleanArray, UInt32Array};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_planner::id::OperatorId;

/// Row by row: a partition's number, or none.
type Plain = Vec<Option<u8>>;

/// Another allocation each time: origins are equal by what they say.
fn origin(number: u8) -> Origin {
    Arc::new(Partition { source: OperatorId::new("s").unwrap(), split: number.to_string() })
}

fn origins(plain: &[Option<u8>]) -> Origins {
    Origins::each(plain.iter().map(|number| number.map(origin)))
}

fn plain(origins: &Origins, rows: usize) -> Plain {
    origins.by_row(rows).map(|of| of.map(|origin| origin.split.parse().unwrap())).collect()
}

fn batch() -> impl Strategy<Value = Plain> {
    let of = prop_oneof![1 => Just(None), 3 => (0..3_u8).prop_map(Some)];
    let piece = (of, 1..5_usize).prop_map(|(of, rows)| vec![of; rows]);
    proptest::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// EV-4: whatever happens to a batch, each row keeps its own origin, and equal lists are the same value.
    #[test]
    fn rows_keep_their_origins(
        (rows, mask, indices, cut, weights) in batch().prop_flat_map(|rows| {
            let n = rows.len();
            let mask = proptest::collection::vec(any::<bool>(), n);
            let indices = proptest::collection::vec(0..n as u32, 0..2 * n);
            (Just(rows), mask, indices, (0..=n, 0..=n), proptest::collection::vec(0..3_u64, n))
        }),
        more in batch(),
    ) {
        let all = origins(&rows);
        prop_assert_eq!(&plain(&all, rows.len()), &rows);

        let kept: Plain = rows.iter().zip(&mask).filter(|(_, keep)| **keep).map(|(of, _)| *of).collect();
        prop_assert_eq!(plainly(&all.filter(&BooleanArray::from(mask)), kept.len()), plainly(&origins(&kept), kept.len()));

        let taken: Plain = indices.iter().map(|row| rows[*row as usize]).collect();
        prop_assert_eq!(plainly(&all.take(&UInt32Array::from(indices)), taken.len()), plainly(&origins(&taken), taken.len()));

        let (from, to) = (cut.0.min(cut.1), cut.0.max(cut.1));
        prop_assert_eq!(plainly(&all.slice(from, to - from), to - from), plainly(&origins(&rows[from..to]), to - from));

        let both = [rows.clone(), more.clone()].concat();
        prop_assert_eq!(Origins::concat([(&all, rows.len()), (&origins(&more), more.len())].into_iter()), origins(&both));

        let mut counts = BTreeMap::new();
        all.count(&weights, &mut counts);
        let mut expected: BTreeMap<Origin, u64> = BTreeMap::new();
        for (of, weight) in rows.iter().zip(&weights) {
            if let (Some(number), true) = (of, *weight > 0) {
                *expected.entry(origin(*number)).or_default() += weight;
            }
        }
        prop_assert_eq!(counts, expected);
    }
}

/// Its rows, and whether it is a list; a batch without rows is none.
fn plainly(found: &Origins, rows: usize) -> (Plain, bool) {
    (plain(found, rows), rows > 0 && matches!(found, Origins::Runs(_)))
}

/// The usual case costs no list: one partition stays one name.
#[test]
fn one_partition_stays_one_name() {
    let one = Origins::One(origin(1));
    let mask = BooleanArray::from(vec![true, false]);
    for found in
        [one.slice(1, 1), one.filter(&mask), one.take(&UInt32Array::from(vec![1, 1])), Origins::concat([(&one, 2), (&one, 3)].into_iter())]
    {
        assert_eq!(found, one);
    }
    assert_eq!(one.only(), Some(&origin(1)));
    assert_eq!(Origins::Unknown.only(), None);
}
