//! x
use index_table_bench::{contenders, run::{self, Plan}};
#[global_allocator]
static ALLOCATOR: index_table_bench::allocations::Counting = index_table_bench::allocations::Counting;
fn main(){
    let a: Vec<String> = std::env::args().skip(1).collect();
    let rows: usize = a[0].parse().unwrap();
    let d = tempfile::tempdir().unwrap();
    let e = tempfile::tempdir_in("/dev/shm").unwrap();
    let plan = Plan { rows: vec![rows], loads: 3, rounds: a[1].parse().unwrap(), units: 10_000, durable: 50 , directories: run::Directories { disk: d.path().into(), memory: e.path().into() }};
    let r = run::run(&contenders::ALL, &plan).unwrap();
    for f in &r.figures { println!("{:?} {} {:.1} ratio {:.3} spread {:.0?}", f.measure, f.contender, f.median.unwrap_or(-1.0), f.ratio.unwrap_or(-1.0), f.spread); }
}
