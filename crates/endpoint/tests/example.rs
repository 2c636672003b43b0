//! The example says what it should.

#[test]
fn the_example_runs() {
    assert_eq!(shunt_testkit::example("endpoint"), "hello\n");
}
