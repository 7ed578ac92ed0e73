package race

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"warmpool.dev/controller/test/history"
)

const (
	// seeds is how many seeds are run where nothing else is asked for.
	seeds = 300
	// seedVariable names one seed that is run again, and soakVariable how long new ones
	// are run, in the environment.
	seedVariable = "RACE_SEED"
	soakVariable = "RACE_SOAK"
)

// Everything at random: what happens, and what goes wrong.
func TestRandom(t *testing.T) {
	t.Parallel()
	switch seed, soak := os.Getenv(seedVariable), os.Getenv(soakVariable); {
	case seed != "":
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			t.Fatalf("read %s: %v", seedVariable, err)
		}
		tellOrShrink(t, n)
	case soak != "":
		d, err := time.ParseDuration(soak)
		if err != nil {
			t.Fatalf("read %s: %v", soakVariable, err)
		}
		soakFor(t, d)
	default:
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
				t.Parallel()
				newScript(seed + 1).tell(t)
			})
		}
	}
}

// tell tells the script and judges the telling. Each script has a namespace and a
// controller of its own: of the two seconds of processor time that one takes, on all sides,
// half a second goes into the start of the controller. To share it would save that, and a
// seed that fails could not be run again without those before it.
func (s script) tell(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s\nto run it again: %s=%d go test ./race -run '^TestRandom$' -v", s, seedVariable, s.seed)
		}
	}()
	var r *run
	if s.elected {
		r = newElection(t, "random, elected")
		r.mayEnd = true // see onlyLostLeases
	} else {
		r = newRun(t, env, "random")
	}
	r.excused = s.excused()
	var strikes []*mishap
	for _, f := range s.faults {
		made := f.trouble(r)
		r.trouble = append(r.trouble, made...)
		strikes = append(strikes, made[0])
	}
	if s.elected {
		r.launchPair()
	} else {
		r.launch()
	}
	r.tell(s.steps)
	for i, m := range strikes {
		tally.noteFault(s.faults[i].kind.name, m.fired())
	}
	r.finish(s.terms())
	r.onlyLostLeases()
}

// onlyLostLeases checks that no process has ended by itself but for a lease that it couldn't
// renew in time.
func (r *run) onlyLostLeases() {
	r.t.Helper()
	for _, p := range r.processes {
		if p.replaced && !p.dying.Load() && !p.asleep.Load() && !strings.Contains(p.controller.Log(), "lost the lease") {
			r.t.Errorf("%s has ended by itself, and not because it had lost the lease", p.name)
		}
	}
}

// soakFor runs new seeds, as many at once as tests are, until one fails or the time is
// over.
func soakFor(t *testing.T, d time.Duration) {
	t.Helper()
	until := time.Now().Add(d)
	var last atomic.Uint64
	last.Store(uint64(time.Now().UnixMilli()))
	t.Logf("seeds from %d on, for %s", last.Load()+1, d)
	var failed atomic.Bool
	// Subtests that are parallel begin when the function that makes them has returned,
	// so each of these makes its own, one after the other.
	lines, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	if err != nil {
		t.Fatal(err)
	}
	for n := range lines {
		t.Run(fmt.Sprintf("line %d", n+1), func(t *testing.T) {
			t.Parallel()
			for time.Now().Before(until) && !failed.Load() {
				if !tellOrShrink(t, last.Add(1)) {
					failed.Store(true)
				}
			}
		})
	}
}

// tellOrShrink tells the script of a seed. If that fails it looks for the faults that are
// enough to make it fail: those that can't be left out one after the other. What fails
// now and then only may lead it astray.
func tellOrShrink(t *testing.T, seed uint64) (ok bool) {
	t.Helper()
	s := newScript(seed)
	if t.Run(fmt.Sprintf("seed %d", seed), s.tell) {
		return true
	}
	for i := len(s.faults) - 1; i >= 0; i-- {
		fewer := s.without(i)
		if !t.Run(fmt.Sprintf("seed %d without fault %d", seed, i+1), fewer.tell) {
			s = fewer
		}
	}
	t.Logf("seed %d fails, and this is enough:\n%s", seed, s)
	return false
}

// The generator: the same seed gives the same script.
func TestASeedGivesTheSameScriptEachTime(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		if first, second := newScript(seed).String(), newScript(seed).String(); first != second {
			t.Fatalf("the script is\n%s\nand then\n%s", first, second)
		}
	}
	if newScript(1).String() == newScript(2).String() {
		t.Error("two seeds give the same script")
	}
}

// The generator: all that can happen does, and all that can go wrong.
func TestInAThousandSeedsThereIsEverything(t *testing.T) {
	t.Parallel()
	happens, goesWrong := map[string]int{}, map[string]int{}
	for seed := range uint64(1000) {
		s := newScript(seed)
		for _, name := range s.acts {
			happens[name]++
		}
		for _, f := range s.faults {
			goesWrong[f.kind.name]++
		}
	}
	for _, act := range acts {
		if happens[act.name] == 0 {
			t.Errorf("nowhere: %s", act.name)
		}
	}
	for _, kind := range faultKinds {
		if goesWrong[kind.name] == 0 {
			t.Errorf("nowhere: %s", kind.name)
		}
	}
	t.Logf("what happens: %v; what goes wrong: %v", happens, goesWrong)
}

// The generator: leaving a fault out leaves the rest as it is.
func TestAScriptCanDoWithoutAFault(t *testing.T) {
	t.Parallel()
	seed := uint64(0)
	for len(newScript(seed).faults) < 3 {
		seed++
	}
	s := newScript(seed)
	fewer := s.without(1)
	want := []string{s.faults[0].String(), s.faults[2].String()}
	var got []string
	for _, f := range fewer.faults[:2] {
		got = append(got, f.String())
	}
	if !slices.Equal(got, want) || len(fewer.faults) != len(s.faults)-1 || len(newScript(seed).faults) != len(s.faults) {
		t.Errorf("without the second fault the script is\n%s\nand it was\n%s", fewer, s)
	}
}

// The generator: nothing is forgiven but what the faults make legitimate.
func TestTheTermsOfAScriptFollowFromItsFaults(t *testing.T) {
	t.Parallel()
	kind := func(name string) *faultKind {
		i := slices.IndexFunc(faultKinds, func(kind *faultKind) bool { return kind.name == name })
		return faultKinds[i]
	}
	create, patch := point{verb: "create", resource: "pods", n: 1}, point{verb: "patch", resource: "pods", n: 1}
	late := fault{kind: kind("write late"), point: create}
	muchTooLate := fault{kind: kind("write much too late"), point: create}
	handOutMuchTooLate := fault{kind: kind("write much too late"), point: patch}
	lateHandOut := fault{kind: kind("write late"), point: patch}
	dies := fault{kind: kind("dies after"), point: patch}
	sleeps := fault{kind: kind("leader sleeps"), point: patch}
	for name, c := range map[string]struct {
		faults  []fault
		elected bool
		want    history.Terms
		excused []string
	}{
		"a process that dies":                                {faults: []fault{dies}},
		"a late creation":                                    {faults: []fault{late}},
		"a late hand-out":                                    {faults: []fault{lateHandOut}},
		"a creation that is much too late":                   {faults: []fault{muchTooLate}, want: history.Terms{Excess: 1}},
		"a hand-out that is much too late":                   {faults: []fault{handOutMuchTooLate}, want: history.Terms{Overlap: overlap}},
		"late creations of one that dies":                    {faults: []fault{late, dies, muchTooLate}, want: history.Terms{Excess: 2}},
		"a late hand-out of one that dies":                   {faults: []fault{dies, lateHandOut}, want: history.Terms{Overlap: overlap}},
		"a late hand-out of a leader that dies":              {faults: []fault{dies, lateHandOut}, elected: true, want: history.Terms{Overlap: overlap}, excused: []string{"O18"}},
		"a leader that sleeps":                               {faults: []fault{sleeps}, elected: true, want: asleepTerms, excused: []string{"O18"}},
		"a leader that dies":                                 {faults: []fault{dies}, elected: true},
		"a late creation where leaders are elected and live": {faults: []fault{late}, elected: true},
	} {
		s := script{faults: c.faults, elected: c.elected}
		if got := s.terms(); got.Excess != c.want.Excess || got.Overlap != c.want.Overlap {
			t.Errorf("%s: terms %+v, want %+v", name, got, c.want)
		}
		if got := s.excused(); !slices.Equal(got, c.excused) {
			t.Errorf("%s: excused is %v, want %v", name, got, c.excused)
		}
	}
}
