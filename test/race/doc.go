// Package race tells the controller a story, and makes trouble at every point of it.
//
// The story is what users and nodes do to one pool: it fills, claims come, it grows, a
// claim goes, Pods are lost, it shrinks. It is told to a controller that is a process of
// its own, built with the race detector if the tests are, behind a fault proxy of its own,
// in a namespace of its own. A reference run, without trouble, yields the points: each
// write that the controller sends, each event and each list that it is sent. Then the story
// is told once for each point and each kind of trouble, and judged on the history that
// etcd tells, joined with what the proxy saw; see package history.
//
//	story.go        the story
//	run.go          one telling: namespace, recorder, kubelet, proxies, processes
//	trouble.go      what goes wrong in a telling, and when it is over
//	settle.go       waiting, by condition: settled, stalled, at rest
//	points.go       the points of a story
//	judge.go        what is held against a telling
//	tally.go        what all tellings together have shown: writes judged, guards that fired
//
//	crash_test.go       the process dies before, and after, every write
//	lost_test.go        the answer to every write is lost, or the write comes late
//	errors_test.go      every write, list and watch is refused in every way
//	stale_test.go       the events of a resource are held back, from every one on
//	failover_test.go    the leader dies, or sleeps, at a write; the standby is blind
//	timetravel_test.go  the API server that the controller moves to is cut off from etcd
//	oldworld_test.go    lists and watches tell of an older world
//	random_test.go      all of it, at random, by a seed that can be run again;
//	                    random_script, random_acts and random_faults draw what a seed stands for
//
// Besides there are scenarios: faults that were reported of other controllers, replayed
// here. docs/scenarios.md is their table, table_test.go holds it against the tests, and
// scenario.go has what they share.
//
//	duplicates_test.go  made twice
//	older_test.go       old state over new
//	synced_test.go      work before all is there
//	handlers_test.go    handlers and the cache
//	records_test.go     records of one's own writes
//	refused_test.go     conflicts, loops, backoff
//	replicas_test.go    leader election
//	unanswered_test.go  lost answers
//	watches_test.go     watches that die
//	owners_test.go      owners and the garbage collector
//	scope_test.go       namespaces and rights
//	quiet_test.go       status storms
//	handout_test.go     warm pools: hand-outs
//	warmpods_test.go    warm pools: the Pods that wait
//
// RACE_SEED=17 runs one seed of the last again, RACE_SOAK=30m runs new ones for that long.
package race
