//! Round trips, a pinned vector, and every possible corruption of a small segment.

use super::{BLOCK_ROWS, SegmentRef, decode, encode, open, put_file, read, write};
use arrow::array::{Int64Array, Int64Builder, ListBuilder, RecordBatch, StringArray, UInt32Array};
use std::sync::Arc;
use weir_kernel::io::StateImage;
use weir_planner::error::Class;
use weir_planner::id::OperatorId;

fn image(rows: u32) -> StateImage {
    let groups = UInt32Array::from_iter_values((0..rows).map(|i| i / 2));
    let starts = Int64Array::from_iter_values((0..rows).map(|i| i64::from(i) * 1_000 - 5_000));
    let names = StringArray::from_iter((0..rows).map(|i| (i % 3 != 0).then(|| format!("k{i}"))));
    let rows = RecordBatch::try_from_iter_with_nullable([
        ("__key_group", Arc::new(groups) as arrow::array::ArrayRef, false),
        ("__window_start", Arc::new(starts), false),
        ("name", Arc::new(names), true),
    ]);
    StateImage {
        operator: OperatorId::new("win").unwrap(),
        subtask: 1,
        rows: rows.unwrap(),
        retired_ms: -7,
        scalars: vec![("evicted_below".to_owned(), 42)],
    }
}

fn same(left: &StateImage, right: &StateImage) {
    assert_eq!((&left.operator, left.subtask, left.retired_ms), (&right.operator, right.subtask, right.retired_ms));
    assert_eq!(left.scalars, right.scalars);
    assert_eq!(left.rows, right.rows);
}

/// STA-4: what is written comes back, without rows and over several blocks too.
#[test]
fn images_come_back_as_they_were() {
    for rows in [0, 1, 7, u32::try_from(BLOCK_ROWS).unwrap() * 2 + 3] {
        let image = image(rows);
        same(&decode(&encode(&image).unwrap()).unwrap(), &image);
    }
}

/// STA-4, WIN-6: sets of values of a group, which are lists, come back over the borders of blocks too.
#[test]
fn lists_of_values_come_back_as_they_were() {
    let rows = u32::try_from(BLOCK_ROWS).unwrap() + 5;
    let mut lists = ListBuilder::new(Int64Builder::new());
    for row in 0..i64::from(rows) {
        (0..row % 4).for_each(|value| lists.values().append_option((value != 2).then_some(row * value)));
        lists.append(row % 7 != 0);
    }
    let mut image = image(rows);
    let columns = image.rows.columns().iter().cloned().chain([Arc::new(lists.finish()) as arrow::array::ArrayRef]);
    let named = ["__key_group", "__window_start", "name", "__a0_values"].into_iter().zip(columns);
    image.rows = RecordBatch::try_from_iter_with_nullable(named.enumerate().map(|(at, (name, column))| (name, column, at > 1))).unwrap();
    same(&decode(&encode(&image).unwrap()).unwrap(), &image);
}

fn read_part(dir: &std::path::Path, segment: &SegmentRef, key_groups: std::ops::Range<u32>) -> Result<StateImage, crate::error::Error> {
    open(dir, segment)?.part(&key_groups)
}

/// CKP-9, G1: of a part only the blocks that may have its key groups are read: damage of others is not seen, damage of theirs
/// is, and columns and marks come in any case.
#[test]
fn of_a_part_only_its_blocks_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let block = u32::try_from(BLOCK_ROWS).unwrap();
    // Two rows a key group: groups 0 to 32,767 in the first block, 32,768 to 65,535 in the second, then one more.
    let whole = image(block * 2 + 2);
    let segment = write(dir.path(), &whole).unwrap();
    let rows = |from: u32, count: u32| StateImage { rows: whole.rows.slice(from as usize, count as usize), ..whole.clone() };
    let cases = [
        (0..1, rows(0, block)),
        (32_767..32_768, rows(0, block)),
        (32_768..32_769, rows(block, block)),
        (32_767..32_769, rows(0, block * 2)),
        (65_536..70_000, rows(block * 2, 2)),
        (65_537..70_000, rows(0, 0)),
        (0..70_000, rows(0, block * 2 + 2)),
    ];
    for (key_groups, expected) in cases {
        same(&read_part(dir.path(), &segment, key_groups).unwrap(), &expected);
    }
    let path = dir.path().join(&segment.name);
    let good = std::fs::read(&path).unwrap();
    // A byte of the second block, the middle of the file.
    let mut bad = good.clone();
    bad[good.len() / 2 + good.len() / 8] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    same(&read_part(dir.path(), &segment, 0..1).unwrap(), &rows(0, block));
    let error = read_part(dir.path(), &segment, 40_000..40_001).unwrap_err();
    assert_eq!(error.class, Class::Corrupt);
    assert!(error.message.contains(&segment.name) && error.message.contains("checksum of the block"), "{error}");
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    let error = read_part(dir.path(), &segment, 0..1).unwrap_err();
    assert!(error.class == Class::Corrupt && error.message.contains(&segment.name), "{error}");
    // Head, directory and footer are covered as when the whole is read.
    let small = image(3);
    let segment = write(dir.path(), &small).unwrap();
    let path = dir.path().join(&segment.name);
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(read_part(dir.path(), &segment, 0..2).expect_err(&format!("byte {at}")).class, Class::Corrupt);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(read_part(dir.path(), &segment, 0..2).unwrap_err().message.contains("is missing"));
}

/// CKP-12: the bytes of a version never change; a change of this name needs a new version.
#[test]
fn the_layout_is_pinned() {
    let dir = tempfile::tempdir().unwrap();
    let segment = write(dir.path(), &image(3)).unwrap();
    assert_eq!(segment.rows, 3);
    assert_eq!(segment.name, "d947e1e4b7a76c39f173267425ea7378.seg");
    let bytes = std::fs::read(dir.path().join(&segment.name)).unwrap();
    assert_eq!(&bytes[..16], b"WEIRSEG1\x01\0\0\0\x01\0\0\0");
    assert_eq!(bytes.len() as u64, segment.bytes);
}

/// B4, C2: no byte can flip, go missing or be added unnoticed, the name left aside.
#[test]
fn every_flipped_byte_and_every_truncation_is_an_error() {
    let good = encode(&image(3)).unwrap();
    for at in 0..good.len() {
        for bit in [0x01, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            let error = decode(&bad).expect_err(&format!("byte {at} flipped by {bit:#x} went unnoticed"));
            assert_eq!(error.class, Class::Corrupt);
        }
        assert_eq!(decode(&good[..at]).expect_err("truncated").class, Class::Corrupt, "cut at {at}");
    }
    let mut longer = good.clone();
    longer.push(0);
    assert!(decode(&longer).is_err());
    longer = good.clone();
    longer.insert(16, 0);
    assert!(decode(&longer).is_err());
}

/// C51: a missing or altered file is refused by name.
#[test]
fn a_missing_or_altered_file_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let segment = write(dir.path(), &image(5)).unwrap();
    same(&read(dir.path(), &segment).unwrap(), &image(5));
    // Another whole segment under this name is not this segment.
    std::fs::write(dir.path().join(&segment.name), encode(&image(6)).unwrap()).unwrap();
    let error = read(dir.path(), &segment).unwrap_err();
    assert_eq!(error.class, Class::Corrupt);
    assert!(error.message.contains(&segment.name), "{error}");
    let gone = SegmentRef { name: "0.seg".to_owned(), bytes: 1, rows: 1 };
    let error = read(dir.path(), &gone).unwrap_err();
    assert_eq!(error.class, Class::Corrupt);
    assert!(error.message.contains("0.seg is missing"), "{error}");
}

/// C3: a write that fails says where and why, may be tried again, and leaves nothing.
#[test]
fn a_failed_write_names_the_path_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("taken")).unwrap();
    let error = put_file(dir.path(), "taken", b"x").unwrap_err();
    assert_eq!(error.class, Class::Retry);
    assert!(error.to_failure().message.contains("taken: "), "{}", error.to_failure().message);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
