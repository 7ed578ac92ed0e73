package freshness

import (
	"os"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain takes out apimachinery's brake on errors. It remembers the time of the
// last error in the process, and a bubble of synctest starts in the year 2000: the
// first error of a bubble would sleep for as long as another bubble was ahead.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// elapse lets d pass on the clock of the synctest bubble that it is called in. No
// real time passes.
func elapse(d time.Duration) { <-time.After(d) }
