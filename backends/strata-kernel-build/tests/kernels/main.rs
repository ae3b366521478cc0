//! Every kernel on a processor, at waves of 32 and 64, against plain loops in f64: all weight formats, odd
//! shapes, tails, addresses and strides that are no more aligned than each kernel's file demands. Memory ends
//! where a kernel may no longer read, results lie in bytes that nobody else may change, and each launch is
//! repeated with the work-items in other orders, which must change no bit. The kernels that the cards run are
//! the same text, compiled by the same compiler (`backends/kernels/prelude_host.h`).

mod attention;
mod experts;
mod host;
mod matrix;
mod plain;
mod sequence;
mod weights;

use host::Host;

#[test]
fn every_kernel_gives_what_plain_loops_give_at_both_wave_widths() {
    let mut host = match Host::open() {
        Ok(host) => host,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    for test in [matrix::test, experts::test, plain::test, sequence::test, attention::test] {
        test(&mut host);
    }
    let failures = host.failures.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} failures:\n{failures}", host.failures.len());
    assert_eq!(host.not_launched(), Vec::<&str>::new(), "kernels that no test launches");
    eprintln!("{} kernels, {} launches, {} values compared", host.n_kernels(), host.n_launches, host.n_values);
}
