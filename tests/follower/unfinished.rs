//! Followers of a store that was being created when its archive ended.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use index_table::{ArchiveFile, Follower, Options, Store};

use crate::{Dirs, Kind, OrderRepository, Rows, TestResult, dirs, opened, rows_of, wait, write};

const FIRST_SEGMENT: &str = "segment.0000000001";

/// Returns options with a function that copies the files of the archive to a directory, and each manifest but the first to
/// `manifest.last`.
fn options(bucket: &Path) -> Options {
    let bucket = bucket.to_owned();
    Kind::Several.store("orders").archive_with(move |file: ArchiveFile<'_>| {
        let mut object = bucket.join(file.name.split_once('/').ok_or(io::ErrorKind::NotFound)?.1);
        if file.name.ends_with("/manifest") && object.exists() {
            object = bucket.join("manifest.last");
        }
        fs::create_dir_all(object.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        fs::copy(file.path, object).map(drop)
    })
}

fn names(directory: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    });
    Ok(paths)
}

/// The files of an archive from the creation of a store on.
struct Whole {
    bucket: PathBuf,
    rows: Rows,
}

impl Whole {
    fn create(dirs: &Dirs) -> Result<Self, Box<dyn std::error::Error>> {
        let (bucket, mut rows) = (dirs.path("bucket"), Rows::new());
        let (store, orders) = opened(options(&bucket).open(&dirs.store)?)?;
        wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
        write(&store, &orders, &mut rows, 0..20)?;
        drop((store, orders));
        assert_eq!(names(&bucket, "base.0000000001.")?.len(), 3);
        Ok(Self { bucket, rows })
    }

    /// Makes an archive of the first bases and a part of the first segment.
    fn begin(&self, archive: &Path, length: usize) -> TestResult {
        fs::create_dir(archive)?;
        fs::copy(self.bucket.join("manifest"), archive.join("manifest"))?;
        for base in names(&self.bucket, "base.0000000001.")? {
            let copy = archive.join(base.file_name().expect("a name"));
            fs::create_dir(&copy)?;
            for file in names(&base, "")? {
                fs::copy(&file, copy.join(file.file_name().expect("a name")))?;
            }
        }
        let segment = fs::read(self.bucket.join(FIRST_SEGMENT))?;
        fs::write(archive.join(format!("{FIRST_SEGMENT}.part")), &segment[..length])?;
        Ok(())
    }

    /// Adds the rest of the archive.
    fn complete(&self, archive: &Path) -> TestResult {
        for segment in names(&self.bucket, "segment.")? {
            fs::copy(&segment, archive.join(segment.file_name().expect("a name")))?;
        }
        fs::copy(self.bucket.join("manifest.last"), archive.join("manifest"))?;
        fs::remove_file(archive.join(format!("{FIRST_SEGMENT}.part")))?;
        Ok(())
    }

    /// Returns the lengths of the first segment that end in or after one of its first records.
    fn lengths(&self) -> io::Result<Vec<usize>> {
        let length = fs::read(self.bucket.join(FIRST_SEGMENT))?.len();
        let all = (0..=length).step_by((length / 24).max(1));
        Ok(all.chain([length]).collect())
    }
}

#[test]
fn a_follower_opens_before_the_original_has_created_its_shards() -> TestResult {
    let dirs = dirs(Kind::Several)?;
    let whole = Whole::create(&dirs)?;
    for (at, length) in whole.lengths()?.into_iter().enumerate() {
        let (archive, standby) =
            (dirs.path(&format!("archive {at}")), dirs.path(&format!("standby {at}")));
        whole.begin(&archive, length)?;
        drop(Follower::open(&standby, &archive)?);
        let follower = Follower::open(&standby, &archive)?;
        whole.complete(&archive)?;
        wait(|| {
            let lag = follower.lag().expect("a lag");
            assert_eq!(lag.error, None, "{length} bytes");
            lag.commits == 0
        });
        let copies = OrderRepository::open(follower.store())?;
        assert!(rows_of(follower.store(), &copies)? == whole.rows);
        drop((follower, copies));
        let follower = Follower::open(&standby, &archive)?;
        let copies = OrderRepository::open(follower.store())?;
        assert!(rows_of(follower.store(), &copies)? == whole.rows);
    }
    Ok(())
}

#[test]
fn a_follower_is_promoted_before_the_original_has_created_its_shards() -> TestResult {
    let dirs = dirs(Kind::Several)?;
    let whole = Whole::create(&dirs)?;
    for (at, length) in whole.lengths()?.into_iter().enumerate() {
        let (archive, standby) =
            (dirs.path(&format!("archive {at}")), dirs.path(&format!("standby {at}")));
        whole.begin(&archive, length)?;
        let follower = Follower::open(&standby, &archive)?;
        let (store, orders) = opened(follower.promote()?)?;
        let mut rows = rows_of(&store, &orders)?;
        write(&store, &orders, &mut rows, 30..40)?;
        assert!(rows_of(&store, &orders)? == rows);
        drop((store, orders));
        let (store, orders) = opened(Store::open(&standby)?)?;
        assert!(store.unavailable_shards().is_empty());
        write(&store, &orders, &mut rows, 40..50)?;
        store.move_range("orders", 5u32..12, "c").run()?;
        assert!(rows_of(&store, &orders)? == rows, "{length} bytes");
    }
    Ok(())
}
