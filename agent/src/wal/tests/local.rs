//! The log in redb files.

use super::super::local::{FILE_BYTES, LocalLog};
use super::super::{Compression, Found, Frame, Part};
use super::{entry, frame, kinds, place};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_planner::error::Class;

fn open(dir: &Path, attempt: u64) -> (LocalLog, Found) {
    LocalLog::open(&dir.join("j/wal/it-0"), &place(dir, None, attempt, None).0).unwrap()
}

/// Everything that is in a log, and what is wrong with it.
fn all(found: &Found) -> (Vec<Frame>, Vec<String>) {
    let read: Vec<_> = found.parts.iter().map(|part| part.read().unwrap()).collect();
    let damage = read.iter().filter_map(|contents| contents.damage.clone()).collect();
    (read.into_iter().flat_map(|contents| contents.frames).collect(), damage)
}

fn redb_files(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir.join("j/wal/it-0")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|ext| ext == "redb"));
    found.sort();
    found
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copied(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// D1, D4: what was appended is there after any end of the process, in order and once; files go when
/// all of their records were passed; a second opener is refused, and the first one's end lets the next one in.
#[test]
fn what_was_appended_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut appended = Vec::new();
    let mut next = 0;
    for attempt in 1..=3 {
        let (mut log, found) = open(dir.path(), attempt);
        assert_eq!((found.end, found.new), (next, attempt == 1));
        assert_eq!(all(&found), (appended.clone(), vec![]));
        let refused = LocalLog::open(&dir.path().join("j/wal/it-0"), &place(dir.path(), None, 9, None).0).err().unwrap();
        assert!(refused.class == Class::Retry && refused.message.contains("open already"), "{refused}");
        for records in [1, 5, 2] {
            let written = [frame(next, records), frame(next + records, 3)];
            log.append(&written).unwrap();
            next += records + 3;
            appended.extend(written);
            // A kill: whoever opens a copy of the files finds it.
            let copy = tempfile::tempdir().unwrap();
            copied(dir.path(), copy.path());
            assert_eq!(all(&open(copy.path(), 9).1), (appended.clone(), vec![]));
        }
    }
    let (mut log, _) = open(dir.path(), 4);
    assert_eq!(redb_files(dir.path()).len(), 3, "each attempt began a file");
    log.trim(16);
    assert_eq!(redb_files(dir.path()).len(), 3, "a record of the first file was not passed");
    log.trim(17);
    assert_eq!(redb_files(dir.path()).len(), 2);
    log.trim(u64::MAX);
    assert_eq!(redb_files(dir.path()).len(), 1, "the last one says how far the log went");
    drop(log);
    assert_eq!(open(dir.path(), 5).1.end, next);
}

/// D4: under steady load the files stay below twice the live data and 64 MB.
#[test]
fn files_stay_in_their_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(dir.path(), 1);
    let (mut next, mut live, mut most) = (0, std::collections::VecDeque::new(), 0);
    for round in 0..120 {
        let rows: Vec<i64> = (0..65_536).collect();
        let frame = entry(next, &rows).frame(1, Compression::None).unwrap();
        log.append(std::slice::from_ref(&frame)).unwrap();
        next = frame.end();
        live.push_back((next, frame.bytes().len() as u64));
        if round % 10 == 9 {
            // All but the last four were passed.
            live.drain(..live.len() - 4);
            log.trim(live[0].0 - 65_536);
        }
        let bytes: u64 = redb_files(dir.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
        let live: u64 = live.iter().map(|(_, bytes)| bytes).sum();
        most = most.max(bytes);
        assert!(bytes <= 2 * live + (64 << 20), "round {round}: {bytes} bytes for {live} live ones");
    }
    println!("at most {most} bytes of files");
    assert!(most > FILE_BYTES);
}

/// WAL-3: whatever byte of a file is damaged, and wherever it is cut off, nothing panics, every entry that does not hold the
/// byte is read, and the loss is told.
#[test]
fn damage_of_any_byte_leaves_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let frames: Vec<Frame> = (0..4).map(|n| frame(n * 3, 3)).collect();
    let (mut log, _) = open(dir.path(), 1);
    for frame in &frames {
        log.append(std::slice::from_ref(frame)).unwrap();
    }
    drop(log);
    let path = redb_files(dir.path()).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let places: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let held: Vec<(usize, usize)> =
        frames.iter().flat_map(|frame| memchr::memmem::find_iter(&whole, frame.bytes()).map(|at| (at, at + frame.bytes().len()))).collect();
    assert!(held.len() >= 4, "a frame lies in one piece");
    let read = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let (_, found) = open(dir.path(), 2);
        std::fs::write(&path, bytes).unwrap();
        let Part::File(part) = &found.parts[0] else { panic!() };
        let contents = part.read().unwrap();
        assert!(contents.frames.iter().all(|frame| frames.contains(frame)), "{what}: an entry that nobody wrote");
        assert!(contents.frames.is_sorted_by_key(Frame::first), "{what}");
        contents
    };
    let (mut lost, mut told) = (0, 0);
    // A sample of all places: every byte of an entry is tried beside `Frame`.
    for (turn, at) in places.iter().copied().enumerate() {
        let inside = held.iter().any(|(from, to)| (*from..*to).contains(&at));
        if !inside && turn % 211 != 0 || inside && turn % 29 != 0 {
            continue;
        }
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let contents = read(&bytes, &format!("byte {at}"));
        let missing = frames.len() - contents.frames.len();
        assert!(missing <= 1, "byte {at}: {missing} entries are gone");
        lost += missing;
        told += usize::from(contents.damage.is_some());
        assert!(missing == 0 || contents.damage.is_some(), "byte {at}: a loss that is not told");
    }
    println!("{} places, {lost} with a lost entry, {told} told", places.len());
    for cut in [0, 1, 4096, held[0].0 + 10, held[2].0 + 10, whole.len() / 2, whole.len() - 1] {
        let contents = read(&whole[..cut], &format!("cut at {cut}"));
        let kept = held.iter().filter(|(_, to)| *to <= cut).count();
        assert!(kept == 0 || !contents.frames.is_empty(), "cut at {cut}: {kept} lie before it");
    }
}

/// EPO-9: a log that the job has left behind is set aside, told of, and deleted once the horizon passes; opening alone
/// makes the log the present one.
#[test]
fn a_log_that_was_left_is_not_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let log_dir = dir.path().join("j/wal/it-0");
    open(dir.path(), 3).0.append(&[frame(0, 5)]).unwrap();
    // Opened by attempt 4 without an entry, and that one decided: nothing is left.
    drop(open(dir.path(), 4));
    let (at, told) = place(dir.path(), None, 5, Some(4));
    assert_eq!(LocalLog::open(&log_dir, &at).unwrap().1.end, 5);
    assert!(kinds(&told).is_empty());
    // Attempt 6 decided elsewhere.
    let (at, told) = place(dir.path(), None, 7, Some(6));
    let (mut log, found) = LocalLog::open(&log_dir, &at).unwrap();
    assert_eq!((found.end, found.parts.len(), found.new), (0, 0, false));
    assert_eq!(kinds(&told), ["wal_set_aside"]);
    assert!(log_dir.join("left").exists());
    log.append(&[frame(20, 5)]).unwrap();
    log.trim(20);
    assert!(!log_dir.join("left").exists());
    drop(log);
    let (at, _) = place(dir.path(), None, 8, Some(7));
    assert_eq!(LocalLog::open(&log_dir, &at).unwrap().1.end, 25);
}

/// EPO-9: a job that begins from nothing begins with an empty log, and when it is told so twice, with its own.
#[test]
fn a_job_from_nothing_has_an_empty_log() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = |attempt: u64| {
        let (mut at, _) = place(dir.path(), None, attempt, None);
        at.empty = true;
        LocalLog::open(&dir.path().join("j/wal/it-0"), &at).unwrap()
    };
    open(dir.path(), 1).0.append(&[frame(0, 5)]).unwrap();
    let (mut log, found) = fresh(2);
    assert_eq!((found.end, found.parts.len()), (0, 0));
    log.append(&[frame(0, 3)]).unwrap();
    drop(log);
    assert_eq!(all(&fresh(2).1).0, [frame(0, 3)]);
    assert_eq!(all(&open(dir.path(), 3).1).0, [frame(0, 3)]);
}

/// WAL-3: on a real full disk a write is refused, what was durable stays, and after room was made the same entries go in.
/// Needs the right to mount; without it, `a_full_disk_holds_back_and_loses_nothing` stands alone.
#[test]
fn a_small_disk_refuses_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("no right to mount: not tried");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let (mut log, _) = open(dir.path(), 1);
        let (mut appended, mut next) = (Vec::new(), 0);
        let rows: Vec<i64> = (0..65_536).collect();
        let refused = loop {
            let frame = entry(next, &rows).frame(1, Compression::None).unwrap();
            match log.append(std::slice::from_ref(&frame)) {
                Ok(()) => {
                    next = frame.end();
                    appended.push(frame);
                }
                Err(error) => break error,
            }
            assert!(appended.len() < 1000, "the disk has no end");
        };
        assert_eq!(refused.class, Class::Retry);
        assert!(refused.to_failure().message.contains("No space left"), "{}", refused.to_failure().message);
        let frame = entry(next, &rows).frame(1, Compression::None).unwrap();
        assert_eq!(log.append(std::slice::from_ref(&frame)).unwrap_err().class, Class::Retry, "still full");
        let half = appended.iter().map(Frame::end).nth(appended.len() / 2 + 8).unwrap_or(next);
        log.trim(half);
        log.append(std::slice::from_ref(&frame)).unwrap();
        appended.push(frame);
        drop(log);
        let (found, _) = all(&open(dir.path(), 2).1);
        let kept: Vec<Frame> = appended.iter().filter(|frame| frame.end() > half).cloned().collect();
        assert!(kept.iter().all(|frame| found.contains(frame)), "a durable entry is gone");
        println!("{} entries until the disk was full", appended.len() - 1);
    });
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
