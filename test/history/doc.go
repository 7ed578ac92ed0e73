// Package history records what really happened and judges it.
//
// A Recorder keeps every version of every object, from one watch on etcd itself: all
// resources in the one order in which they were written, with no cache and no API
// server in between, and with an error rather than a gap. A judge is a function from a
// History to Violations. It knows nothing of the controller, and can be run again on a
// history that was stored.
//
//	recorder, err := history.Record(ctx, history.Recording{Endpoints: []string{etcdURL}, Namespaces: []string{ns}})
//	defer recorder.Close()
//	... a story with faults ...
//	err = recorder.WaitFor(ctx, "the pool to settle", func(w *history.World) bool { return len(w.Unsettled()) == 0 })
//	h, err := recorder.History(ctx)
//	for _, v := range history.Judge(h, history.Terms{Logs: []faultproxy.Log{proxy.Log()}}) {
//		t.Error(v)
//	}
//
// What is judged, where, and on what; the comment of each function says exactly how:
//
//	I1  exclusive            exclusive.go   history
//	I2  one per claim        exclusive.go   history
//	I3  bounded              bounded.go     history; with logs, what the controller could know
//	I4  hands off            handsoff.go    history; with logs, who did it
//	I5  no leak              leak.go        history
//	I6  live                 settled.go     the end of the history
//	I7  quiet                quiet.go       a span of the history, or of the logs
//	I8  paced                paced.go       logs
//	I9  synced first         synced.go      the log of one process
//	I10 one writer           writer.go      leases in the history, and logs
//	I12 UID is identity      identity.go    history
//	O15 settles and stays    settled.go     history
//	O17 every write guarded  wire.go        logs
//	O18 no write out of term writer.go      leases in the history, and logs
//	O19 monotone status      monotone.go    history
//	O24 hash and template    template.go    history
//	O25 a roll's budget      rolled.go      logs
//	O26 updated Pods first   rolled.go      history; with logs, what the controller could know
//	O27 lifetimes            expired.go     history; with logs, who deleted
//
// I11 is for the mutation detector, I13 for the guards' own counters, I14 for tests of
// its messages.
package history
