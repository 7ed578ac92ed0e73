package lab

// The guards of pkg/freshness, and how each is taken out.

import "slices"

// row is one experiment: a guard, and the fault under which its absence does most harm.
type row struct {
	// guard is its name, as in docs/freshness.md, and file where it is.
	guard, file string
	// out takes it out. taken says so, where the lines alone wouldn't.
	out   []edit
	taken string
	// both is done to the sources with the guard, too, so that the fault hits each time.
	both []edit
	// fault is what goes wrong, for the table.
	fault string
	story func(*telling)
	// creates and deletes are how many Pods the story needs created and deleted by the
	// controller.
	creates, deletes int
	// remark is what the row shows, for the page.
	remark string
}

// rows are all of them, in the order of the page.
func rows() []row { return append(guardRows(), secondLine()...) }

func guardRows() []row { return slices.Concat(cacheRows(), processRows()) }

// cacheRows are about what a cache lacks while the controller works.
func cacheRows() []row {
	return []row{
		ledgerRow(),
		{
			guard: "Transport", file: "transport.go", story: claimsWhileBlind, creates: 6,
			out:    []edit{{"pkg/freshness/guards.go", "transport.Wrap(g.writes)", "transport.Wrap(rest.CopyConfig(config))"}},
			fault:  "Pod events are held back while three claims come, one after the other",
			remark: remarkTransport,
		},
		{
			guard: "Ledger: doubt", file: "doubt.go", story: answersLost, creates: 2,
			out: []edit{{"pkg/freshness/transport.go",
				"	case err != nil:\n		ledger.Doubt(entry)",
				"	case err != nil:\n		ledger.Refuse(entry)"}},
			fault:  "the answers to the first six creations are lost, and Pod events held back for 2 s",
			remark: remarkLedgerDoubt,
		},
		{
			guard: "Ledger: a cache that goes back", file: "store.go", story: cacheGoesBack, creates: 4,
			out: []edit{{"pkg/freshness/store.go",
				"err == nil && order < 0 {\n		return version, Verdict{Cause: WentBack, Resource: s.resource, Version: s.highest}",
				"err == nil && order < 0 && false {\n		return version, Verdict{Cause: WentBack, Resource: s.resource, Version: s.highest}"}},
			fault:  "the watch of Pods ends, and the list that follows is from before the pool was filled",
			remark: remarkLedgerACacheThatGoesBack,
		},
		{
			guard: "Backlog", file: "backlog.go", story: refusedAfterLag, creates: 2,
			out: []edit{{"pkg/freshness/backlog.go",
				"		if !b.config.Ledger.Check(key).Fresh() && b.Park(key) {\n			return Result{Parked: true}, nil",
				"		if !b.config.Ledger.Check(key).Fresh() {\n			return Result{}, errors.New(\"the cache is behind\")"}},
			taken:  "a stale key is put back with `AddRateLimited`, as kube-controller-manager does",
			fault:  "Pod events are held back for 6 s; then the API server refuses writes for 1 s",
			remark: remarkBacklog,
		},
		{
			guard: "Watermark", file: "watermark.go", story: oldPodComesBack, creates: 4,
			out:    []edit{{"pkg/freshness/guards.go", "watermark.Handler(handler)", "handler"}},
			fault:  "an old version of a Pod comes after newer ones, and other events go on",
			remark: remarkWatermark,
		},
		{
			guard: "Feed", file: "feed.go", story: watchDies, creates: 4,
			out: []edit{{"pkg/freshness/feed.go",
				"cache.NewSharedIndexInformerWithOptions(&feedListerWatcher{f},",
				"cache.NewSharedIndexInformerWithOptions(config.ListerWatcher,"}},
			fault:  "the watch of Pods goes silent, and stays open",
			remark: remarkFeed,
		},
		{
			guard: "Validator", file: "validator.go", story: creationLost, creates: 1,
			out:    []edit{{"pkg/freshness/guards.go", "	return validator.Run(ctx)\n", "	<-ctx.Done()\n	return nil\n"}},
			fault:  "the first creation is lost on its way to the API server",
			remark: remarkValidator,
		},
		confirmRow(),
	}
}

// processRows are about its start, its end and its means.
func processRows() []row {
	return []row{
		{
			guard: "Gate", file: "gate.go", story: podsForbidden,
			out: []edit{{"pkg/freshness/guards.go",
				"	if err := g.Gate.Wait(ctx); err != nil {",
				"	for _, f := range g.feeds {\n		cache.WaitForCacheSync(ctx.Done(), f.Informer().HasSynced)\n	}\n	if err := ctx.Err(); err != nil {"}},
			taken:  "client-go's `WaitForCacheSync` is waited for instead",
			fault:  "the right to list Pods is missing",
			remark: remarkGate,
		},
		gateFenceAndLedger(),
		{
			guard: "Fence", file: "fence.go", story: blindStandby, creates: 6,
			out: []edit{{"pkg/freshness/guards.go",
				"	if err := fence.Wait(ctx); err != nil {\n		return err\n	}",
				"	_ = fence"}},
			fault:  "the standby sees no Pod events from before the pool grows; the leader dies; it sees again 2 s after it has the lease",
			remark: remarkFence,
		},
		{
			guard: "Term", file: "term.go", story: leaseTaken, creates: 10,
			out:    []edit{{"main.go", "options.Permit = term.Permit", "_ = term.Permit"}},
			fault:  "the lease is given to the standby by hand; a second later the pool grows",
			remark: remarkTerm,
		},
		{
			guard: "Reads, Writes", file: "halves.go", story: watchConnectionDies, creates: 3,
			out: []edit{
				{"pkg/freshness/halves.go", "reads.Timeout, writes.Timeout = 0, writeTimeout", "reads.Timeout, writes.Timeout = 0, 0"},
				{"main.go", "newClients(guards.Reads())", "newClients(guards.Writes())"},
				{"main.go", "	kube, warmpool, err := newClients(guards.Writes())\n	if err != nil {\n		return nil, err\n	}", "	kube, warmpool := kubeReads, warmpoolReads"},
			},
			taken:  "one pair of clients does all, without a timeout, as usual",
			fault:  "the connection that the watch of Pods is on dies; a claim comes",
			remark: remarkReadsWrites,
		},
		{
			guard: "Queue", file: "queue.go", story: claimAfterRestart, creates: restartPools + 1,
			out:    []edit{{"pkg/freshness/queue.go", "oldest := o.popped%fairEvery == 0", "oldest := true"}},
			taken:  "first in, first out",
			fault:  "a restart with 60 pools to fill, one worker, answers that take 20 ms; a claim waits",
			remark: remarkQueue,
		},
		{
			guard: "Recover", file: "middleware.go", story: brokenPool, creates: 4,
			out: []edit{{"pkg/freshness/guards.go", "{Recover[K], Measure[K]", "{Measure[K]"}},
			both: []edit{{"controller.go", "	actions := pool.Plan(snapshot, c.clock.Now())",
				"	if key.Name == \"broken\" {\n		panic(\"a bug that one pool meets\")\n	}\n	actions := pool.Plan(snapshot, c.clock.Now())"}},
			fault:  "a bug that makes the reconcile of one pool panic (in both builds)",
			remark: remarkRecover,
		},
	}
}

// ledgerRow is by itself, since make test tells it too, and the picture shows it.
func ledgerRow() row {
	return row{
		guard: "Ledger", file: "ledger.go", story: poolTouchedWhileBlind, creates: 5,
		out: []edit{{"pkg/freshness/backlog.go",
			"if !b.config.Ledger.Check(key).Fresh() && b.Park(key) {",
			"if false && b.Park(key) {"}},
		fault:  "Pod events are held back while a pool of 5 fills and is touched five times",
		remark: remarkLedger,
	}
}

func confirmRow() row {
	return row{
		guard: "Confirm", file: "confirm.go", story: podsChangeWhilePlanned, creates: 4, deletes: 4,
		out: []edit{{"pkg/freshness/confirm.go", "if r, ok := ctx.Value(confirmKey{}).(confirmer); ok {",
			"if r, ok := ctx.Value(confirmKey{}).(confirmer); ok && false {"}},
		both: []edit{{"controller.go", "	actions := pool.Plan(snapshot, c.clock.Now())",
			"	actions := pool.Plan(snapshot, c.clock.Now())\n	time.Sleep(500 * time.Millisecond)"}},
		fault:  "a plan takes 500 ms (in both builds), and all Pods that it deletes change meanwhile",
		remark: remarkConfirm,
	}
}

// gateFenceAndLedger is the gate, and what else keeps workers from an empty cache.
func gateFenceAndLedger() row {
	return row{
		guard: "Gate, Fence and Ledger", file: "gate.go", story: podsListedLate, creates: 3,
		out: []edit{
			{"pkg/freshness/guards.go", `	if err := g.Gate.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for _, feed := range required {
		if feed.Version() == "" {
			return fmt.Errorf("the cache of %s is filled but doesn't tell its version: is client-go's feature AtomicFIFO off?", feed.Resource().Resource)
		}
	}
`, ""},
			{"pkg/freshness/guards.go", "	if err := fence.Wait(ctx); err != nil {\n		return err\n	}", "	_ = fence"},
			{"pkg/freshness/store.go", "		return version, Verdict{Cause: Unordered, Resource: s.resource}\n", "		return version, Verdict{}\n"},
		},
		taken:  "all three: the wait for the caches, the fence's, and that a store without a version is stale",
		fault:  "a start beside a pool that is filled; the list of Pods comes 2 s late",
		remark: remarkGateFenceAndLedger,
	}
}
