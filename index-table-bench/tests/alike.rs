//! All contenders on a small table return the same results as plain Rust code.

use index_table_bench::{
    contender::{Contender, Digest, Failure, Outcome, apply},
    contenders::ALL,
    films,
    report::{Machine, Measured},
    results::Measure,
    run::{self, Directories, Plan, SEED},
    workload::{Customer, NameRange, Operation, PAGE, Position, Workload},
};

/// A contender with all rows in the order of their primary keys. Every query reads all rows.
struct Model(Vec<Customer>);

impl Model {
    fn town(&self, town: &str) -> impl Iterator<Item = &Customer> {
        self.0.iter().filter(move |row| row.town == town)
    }

    fn by_name(&self, town: &str) -> Vec<&Customer> {
        let mut rows: Vec<&Customer> = self.town(town).collect();
        rows.sort_by_key(|row| (&row.last_name, row.id));
        rows
    }

    fn change(&mut self, id: u64, digest: &mut Digest, change: impl FnOnce(&mut Customer)) {
        if let Some(row) = self.0.iter_mut().find(|row| row.id == id) {
            change(row);
            digest.found += 1;
        }
    }
}

impl Contender for Model {
    fn insert(&mut self, rows: &[Customer]) -> Outcome {
        self.0.extend_from_slice(rows);
        self.0.sort_by_key(|row| row.id);
        Ok(())
    }

    fn insert_one_by_one(&mut self, rows: &[Customer]) -> Outcome {
        self.insert(rows)
    }

    fn get(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        for id in ids {
            digest.row(self.0.iter().find(|row| row.id == *id));
        }
        Ok(())
    }

    fn get_by_email(&mut self, emails: &[String], digest: &mut Digest) -> Outcome {
        for email in emails {
            digest.row(self.0.iter().find(|row| row.email == *email));
        }
        Ok(())
    }

    fn rows_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        towns.iter().flat_map(|town| self.town(town)).for_each(|row| digest.row(Some(row)));
        Ok(())
    }

    fn entries_of_town(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        let rows = towns.iter().flat_map(|town| self.by_name(town));
        rows.for_each(|row| digest.entry(row.id, &row.last_name, &row.phone));
        Ok(())
    }

    fn rows_in_range(&mut self, ranges: &[NameRange], digest: &mut Digest) -> Outcome {
        for NameRange { town, from, to } in ranges {
            let rows = self.by_name(town).into_iter();
            rows.filter(|row| (from..to).contains(&&row.last_name))
                .for_each(|row| digest.row(Some(row)));
        }
        Ok(())
    }

    fn page(&mut self, positions: &[Position], digest: &mut Digest) -> Outcome {
        for Position { town, after, depth } in positions {
            assert_eq!(self.town(town).filter(|row| row.id <= *after).count(), *depth);
            let rows = self.town(town).filter(|row| row.id > *after);
            rows.take(PAGE).for_each(|row| digest.row(Some(row)));
        }
        Ok(())
    }

    fn count(&mut self, towns: &[String], digest: &mut Digest) -> Outcome {
        for town in towns {
            digest.number(self.town(town).count() as u64);
        }
        Ok(())
    }

    fn set_first_name(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        for (id, name) in changes {
            self.change(*id, digest, |row| row.first_name.clone_from(name));
        }
        Ok(())
    }

    fn set_town(&mut self, changes: &[(u64, String)], digest: &mut Digest) -> Outcome {
        for (id, town) in changes {
            self.change(*id, digest, |row| row.town.clone_from(town));
        }
        Ok(())
    }

    fn delete(&mut self, ids: &[u64], digest: &mut Digest) -> Outcome {
        let before = self.0.len();
        self.0.retain(|row| !ids.contains(&row.id));
        digest.found += (before - self.0.len()) as u64;
        Ok(())
    }
}

#[test]
fn contenders_return_the_results_of_plain_rust() {
    for kind in ALL {
        let directory = tempfile::tempdir().unwrap();
        let mut contender = (kind.open)(directory.path()).unwrap_or_else(|error| fail(&error));
        let mut model = Model(Vec::new());
        let mut workload = Workload::new(SEED, 1_000);
        let mut operations = vec![Operation::Insert(workload.rows().to_vec())];
        operations.extend(workload.round(200, 3));
        operations.extend(workload.round(200, 3));
        operations.push(Operation::Delete(vec![7, 7, 100_000]));
        operations.extend(workload.check());
        for (number, operation) in operations.iter().enumerate() {
            if let Operation::Page(positions) = operation {
                assert!(!positions.is_empty());
                contender.prepare_pages(positions).unwrap_or_else(|error| fail(&error));
            }
            let expected = apply(&mut model, operation).unwrap_or_else(|error| fail(&error));
            match apply(&mut *contender, operation) {
                Ok(digest) => assert_eq!(digest, expected, "{}: operation {number}", kind.name),
                Err(Failure::Lacks) => assert!(matches!(operation, Operation::Page(_))),
                Err(failure) => fail(&failure),
            }
            if number == 15 {
                drop(contender);
                contender = (kind.open)(directory.path()).unwrap_or_else(|error| fail(&error));
            }
        }
        contender.settle().unwrap_or_else(|error| fail(&error));
    }
}

#[test]
fn existing_rows_are_not_inserted_again() {
    for kind in ALL {
        let directory = tempfile::tempdir().unwrap();
        let mut contender = (kind.open)(directory.path()).unwrap_or_else(|error| fail(&error));
        let rows = Workload::new(SEED, 3).rows().to_vec();
        contender.insert(&rows[..2]).unwrap_or_else(|error| fail(&error));
        let same_key = Customer { id: 1, ..rows[2].clone() };
        assert!(contender.insert(&[same_key]).is_err(), "{}", kind.name);
        let same_email = Customer { email: rows[0].email.clone(), ..rows[2].clone() };
        assert!(contender.insert(&[rows[2].clone(), same_email]).is_err(), "{}", kind.name);
        // The failed transaction has left no rows.
        let mut digest = Digest::default();
        contender.get(&[1, 2, 3], &mut digest).unwrap_or_else(|error| fail(&error));
        assert_eq!(digest.found, 2, "{}", kind.name);
    }
}

#[test]
fn a_run_writes_its_report() {
    let (directory, reports) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let directory = directory.path().to_owned();
    let plan = Plan {
        rows: vec![500, 1_000],
        loads: 1,
        rounds: 2,
        units: 100,
        durable: 2,
        directories: Directories { disk: directory.clone(), memory: directory.clone() },
    };
    let kinds = &ALL[..4];
    let customers = run::run(kinds, &plan).unwrap();
    assert_eq!(customers.sizes(), [500, 1_000]);
    assert_eq!(customers.contenders(), ["index-table", "heed", "heed, plain keys", "native_db"]);
    let lacks = customers.figure(500, Measure::Page, "native_db").unwrap();
    assert_eq!((lacks.median, lacks.ratio), (None, None));
    for figure in &customers.figures {
        let lacks = match figure.measure {
            Measure::Page => figure.contender == "native_db",
            Measure::BulkLoad | Measure::BulkLoadToDisk | Measure::BulkSpace => {
                figure.contender != "index-table"
            }
            _ => false,
        };
        assert_eq!(figure.median.is_none(), lacks);
    }
    // Both contenders have the same layout, except for the few pages of the catalog.
    let space = |name| customers.figure(1_000, Measure::Space, name).unwrap().median.unwrap();
    assert!((space("index-table") - space("heed")).abs() < 20.0);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "all files are removed");

    let measured = Measured { machine: Machine::this(), customers, ..Measured::default() };
    let json = serde_json::to_vec(&measured).unwrap();
    let measured: Measured = serde_json::from_slice(&json).unwrap();
    let file = reports.path().join("REPORT.md");
    measured.write(&file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("### 1,000 rows"));
    assert!(text.contains("| page of 20, deep |"));
    assert!(text.contains("N/A"));
    assert!(text.contains("(REPORT.svg)"));
    assert!(!text.contains(reports.path().to_str().unwrap()));
    assert!(
        std::fs::read_to_string(reports.path().join("REPORT.svg")).unwrap().ends_with("</svg>\n")
    );
}

#[test]
fn contenders_return_the_same_films() {
    let directory = tempfile::tempdir().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/movies/films.jsonl");
    let films = films::read(file.as_ref()).unwrap();
    let results = films::run(&films, 1, directory.path()).unwrap();
    assert_eq!(results.films, films.len());
    for (name, figures) in results.contenders {
        let lacking = if name == "native_db" { 3 } else { 0 };
        assert_eq!(figures.iter().filter(|figure| figure.is_none()).count(), lacking, "{name}");
    }
}

/// One wrong byte in one row changes the checksums.
#[test]
fn checksums_differ_if_results_do() {
    let directory = tempfile::tempdir().unwrap();
    let mut right = (ALL[0].open)(directory.path()).unwrap_or_else(|error| fail(&error));
    let rows = Workload::new(SEED, 20).rows().to_vec();
    right.insert(&rows).unwrap_or_else(|error| fail(&error));
    let mut model = Model(rows);
    model.0[3].phone.push('0');
    let operations = Workload::new(SEED, 20).check();
    let differ = operations.iter().filter(|operation| {
        let digests = [&mut *right as &mut dyn Contender, &mut model]
            .map(|contender| apply(contender, operation).unwrap_or_else(|error| fail(&error)));
        digests[0] != digests[1]
    });
    // The counts don't depend on the byte.
    assert_eq!(differ.count(), 4);
}

fn fail(failure: &Failure) -> ! {
    panic!("{failure:?}")
}
