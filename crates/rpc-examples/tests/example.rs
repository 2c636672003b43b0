//! The example says what it should.

#[test]
fn the_example_runs() {
    let said = "1 records, 5 bytes\n2 records, 11 bytes\nrecord 1: second\nno record 7\n102 records\n[1, 2, 3]\nLost\n";
    assert_eq!(shunt_testkit::example("log"), said);
}
