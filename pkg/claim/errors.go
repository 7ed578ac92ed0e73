package claim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ReasonDeleted is the Reason of a FinishedError when somebody else deleted the claim.
// The other reasons are those of the condition Finished, such as v1alpha1.ReasonTimedOut.
const ReasonDeleted = "Deleted"

// FinishedError tells that nothing more comes of a claim.
type FinishedError struct {
	// Reason is why, in one word, for programs; Message is for people.
	Reason, Message string
}

// Error implements error.
func (e *FinishedError) Error() string {
	return fmt.Sprintf("it is finished: %s: %s", e.Reason, e.Message)
}

// Is makes errors.Is(err, &FinishedError{Reason: r}) true for the reason r, and for
// every reason where r is empty.
func (e *FinishedError) Is(target error) bool {
	t, ok := target.(*FinishedError)
	return ok && (t.Reason == "" || t.Reason == e.Reason)
}

// errWatchEnded is the orderly end of a watch: its time was over.
var errWatchEnded = errors.New("its watch has ended")

// statusCode is the code of the API server's answer; 0 if there was none.
func statusCode(err error) int32 {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return answer.Status().Code
	}
	return 0
}

// passes tells whether the same request may get another answer a little later. A 410
// is that of a watch whose version is too old: it begins anew.
func passes(err error) bool {
	if _, finished := errors.AsType[*FinishedError](err); finished {
		return false
	}
	code := statusCode(err)
	return code == 0 || code == http.StatusGone || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// unanswered tells whether a write that ended with err may have happened.
func unanswered(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false // there was no connection to send it on
	}
	code := statusCode(err)
	return code == 0 || code >= http.StatusInternalServerError
}

// stopped is the error of ctx, with what kept the work from being done until then.
func stopped(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ctx.Err()) {
		return ctx.Err()
	}
	return fmt.Errorf("%w, after: %w", ctx.Err(), err)
}
