//! The queries in criterion, for development. `cargo bench -p index-table-bench -- heed` runs the benchmarks
//! whose names contain `heed`. Criterion compares the figures with its last run. To compare
//! contenders, use the program, whose interleaved rounds are more accurate.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use index_table_bench::{
    contender::{Failure, apply},
    contenders::ALL,
    run::SEED,
    workload::{Operation, Workload},
};

const ROWS: usize = 20_000;
const UNITS: usize = 1_000;

fn queries(criterion: &mut Criterion) {
    let mut workload = Workload::new(SEED, ROWS);
    let load = Operation::Insert(workload.rows().to_vec());
    let round = workload.round(UNITS, 1);
    for kind in ALL {
        let directory = tempfile::tempdir().expect("a directory");
        let mut contender = (kind.open)(directory.path()).unwrap_or_else(|error| fail(&error));
        apply(&mut *contender, &load).unwrap_or_else(|error| fail(&error));
        let mut group = criterion.benchmark_group(kind.name);
        for operation in &round {
            if operation.writes() {
                break;
            }
            if let Operation::Page(positions) = operation {
                contender.prepare_pages(positions).unwrap_or_else(|error| fail(&error));
            }
            match apply(&mut *contender, operation) {
                Ok(digest) => group.throughput(Throughput::Elements(digest.found.max(1))),
                Err(Failure::Lacks) => continue,
                Err(failure) => fail(&failure),
            };
            group.bench_function(operation.name(), |bencher| {
                bencher.iter(|| apply(&mut *contender, operation));
            });
        }
        group.finish();
    }
}

fn fail(failure: &Failure) -> ! {
    panic!("{failure:?}")
}

criterion_group!(benches, queries);
criterion_main!(benches);
