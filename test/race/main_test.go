package race

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// env is shared by the tests, each of which has a namespace and a controller of its
// own. Those that break a control plane start one.
var env *environment.Environment

// guards are those that the controller uses, and that must have fired in the suite. A
// guard that never does may be dead code. Missing is the patch: no write of this
// controller is a merge patch.
var guards = []string{"gate", "watermark", "feed", "ledger", "transport", "backlog", "validator", "fence", "confirm", "queue"}

func TestMain(m *testing.M) {
	// The tests wait most of the time, so there may be more of them than processors.
	// A -parallel on the command line still wins.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(environment.RunTests(suite{m}, func(e *environment.Environment) { env = e }))
}

// suite runs the tests, and then says what all of them together have shown.
type suite struct{ m *testing.M }

// Run implements what RunTests wants of a testing.M.
func (s suite) Run() int {
	begun := time.Now()
	stop := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { tellProgress(begun, stop) })
	code := s.m.Run()
	close(stop)
	telling.Wait()
	fmt.Print(&tally)
	chosen := flag.Lookup("test.run").Value.String() + flag.Lookup("test.skip").Value.String() + flag.Lookup("test.list").Value.String()
	if silent := tally.silent(guards); chosen == "" && len(silent) > 0 {
		fmt.Printf("FAIL: guards that never fired in the suite: %v\n", silent)
		return max(code, 1)
	}
	return code
}

// tellProgress says now and then how far the suite is, since it takes some minutes.
func tellProgress(begun time.Time, stop <-chan struct{}) {
	ticker := time.NewTicker(30 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Printf("%6s  %s\n", time.Since(begun).Round(time.Second), tally.progress())
		case <-stop:
			return
		}
	}
}

// reference is the log of a telling without trouble; its points are those of the story.
// It is made once. A test that uses it may be its teller.
func reference(t *testing.T) faultproxy.Log {
	t.Helper()
	told.Do(func() {
		r := newRun(t, env, "none")
		r.launch()
		r.tell(story())
		r.finish(history.Terms{})
		told.log = r.current().proxy.Log()
	})
	if len(told.log.Requests) == 0 {
		t.Fatal("the reference run has failed")
	}
	return told.log
}

var told struct {
	sync.Once
	log faultproxy.Log
}

// With nothing wrong every write of the story succeeds at the first attempt, but for those
// that meet a user's, and no more Pods are made than are asked for.
func TestWithoutTroubleNothingIsWasted(t *testing.T) {
	t.Parallel()
	log := reference(t)
	created, conflicts := 0, 0
	for _, request := range log.Requests {
		if !history.IsGuarded(&request) {
			continue
		}
		switch {
		case request.Committed():
		case request.Resource == "warmpools" && request.Code == http.StatusConflict:
			conflicts++
		default:
			t.Errorf("%s %s/%s %s was answered %d %s", request.Verb, request.Resource, request.Subresource, request.Name, request.Code, request.AnswerReason)
		}
		if request.Verb == "create" {
			created++
		}
	}
	// The user changes the pool twice.
	if conflicts > 2 {
		t.Errorf("%d writes of the pool's status met a conflict, want 2 at most", conflicts)
	}
	// Three, one for each of six claims, one more replica, one for the idle Pod that
	// was lost, two of the new template.
	if created != 13 {
		t.Errorf("%d Pods were created, want 13", created)
	}
	t.Logf("%d writes, %d events: %v", len(writesIn(log)), len(eventsIn(log)), history.Writes(log))
}
