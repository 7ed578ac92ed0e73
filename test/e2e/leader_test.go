package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
)

// The times of the lease in these tests: long enough for a busy machine, short enough
// to wait for.
const (
	leaseDuration = 8 * time.Second
	renewDeadline = 5 * time.Second
	retryPeriod   = time.Second
	writeTimeout  = 3 * time.Second
)

// replicas runs two controllers, the second of which acts as the administrator, so
// that the audit log tells them apart.
type replicas struct {
	t             *testing.T
	ns            *environment.Namespace
	first, second *environment.Controller
}

// startReplicas returns when the first one leads and the second one stands by.
func startReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{t: t, ns: env.Namespace(t)}
	r.ns.Judge()
	r.ns.StartKubelet()
	r.ns.GrantLease()
	flags := []string{
		"--leader-elect", "--leader-elect-namespace=" + r.ns.Name,
		"--leader-elect-lease-duration=" + leaseDuration.String(),
		"--leader-elect-renew-deadline=" + renewDeadline.String(),
		"--leader-elect-retry-period=" + retryPeriod.String(),
		"--write-timeout=" + writeTimeout.String(),
	}
	r.first = r.ns.LaunchController(flags...)
	r.first.WaitLeading()
	admin, err := env.ControlPlane.Kubeconfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	r.second = r.ns.LaunchController(append(flags, "--kubeconfig="+admin)...)
	r.second.WaitReady()
	return r
}

// writes are those of one of the replicas.
func (r *replicas) writes(user string) []controlplane.Write {
	r.t.Helper()
	writes, err := env.ControlPlane.Writes(user)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.DeleteFunc(writes, func(w controlplane.Write) bool {
		return w.Namespace != r.ns.Name || !strings.Contains(w.UserAgent, "warmpool-controller")
	})
}

func (r *replicas) lease() *coordinationv1.Lease {
	r.t.Helper()
	lease, err := env.Kube.CoordinationV1().Leases(r.ns.Name).Get(r.t.Context(), "warmpool-controller", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return lease
}

// fill has the leader make a pool of three and bind a claim.
func (r *replicas) fill() {
	r.t.Helper()
	r.ns.CreatePool(environment.Pool("runners", 3))
	r.ns.CreateClaim(environment.Claim("build", "runners"))
	r.ns.WaitBound("build")
	r.ns.WaitPool("runners", 3, 1)
}

// withoutLease leaves the writes to the lease out.
func withoutLease(writes []controlplane.Write) []controlplane.Write {
	return slices.DeleteFunc(slices.Clone(writes), func(w controlplane.Write) bool { return w.Resource == "leases" })
}

func TestOfTwoReplicasOneActsAndHandsOverWhenItIsStopped(t *testing.T) {
	t.Parallel()
	r := startReplicas(t)
	r.fill()
	if state, err := r.second.State(); state != environment.StandingBy {
		t.Errorf("the second replica is %q (%v), want it to stand by", state, err)
	}
	if writes := r.writes(controlplane.Admin); len(writes) > 0 {
		t.Errorf("the replica that stands by wrote\n%s", environment.Table(writes))
	}

	// Work is under way when it is told to stop.
	claims := createClaims(t, r.ns, "late", 8)
	stopped := time.Now()
	r.first.Stop()
	ended := time.Now()
	r.second.WaitLeading()
	took := time.Since(ended)
	t.Logf("the first ended %s after SIGTERM, the second led %s later", ended.Sub(stopped).Round(time.Millisecond), took.Round(time.Millisecond))
	// A lease that isn't given up is waited for: that takes as long as it lasts.
	if took > leaseDuration-2*time.Second {
		t.Errorf("the second replica led %s after the end of the first", took)
	}
	r.ns.WaitBound(append(claims, "build")...)
	r.ns.WaitPool("runners", 3, 9)
	onePodEach(t, r.ns)

	// The lease was given up when everything else had been written.
	writes := r.writes(controlplane.Controller)
	last := writes[len(writes)-1]
	if last.Resource != "leases" || last.Code != 200 {
		t.Errorf("the first replica's last write is %+v, want that of the lease", last)
	}
	if first := withoutLease(r.writes(controlplane.Admin))[0]; first.Time.Before(last.Time) {
		t.Errorf("the second replica wrote (%s) before the first had given up the lease", first.Kind())
	}
}

func TestAStandbyTakesOverFromALeaderThatIsKilled(t *testing.T) {
	t.Parallel()
	r := startReplicas(t)
	r.fill()
	r.first.Kill()
	killed := time.Now()
	claims := createClaims(t, r.ns, "late", 4)
	r.ns.DeleteClaim("build")
	r.second.WaitLeading()
	took := time.Since(killed)
	t.Logf("the second replica led %s after the first was killed", took.Round(time.Millisecond))
	if took < leaseDuration-2*retryPeriod {
		t.Errorf("the second replica led %s after the first was killed, before the lease of %s was over", took, leaseDuration)
	}
	r.ns.WaitBound(claims...)
	r.ns.WaitPool("runners", 3, 4)
	r.ns.WaitPods(7)
	onePodEach(t, r.ns)
}

func TestALeaderWhoseLeaseIsTakenWritesNothingMore(t *testing.T) {
	t.Parallel()
	r := startReplicas(t)
	r.second.Stop()
	r.fill()

	// Another one takes the lease, as one does that believes it has expired.
	r.ns.Eventually("the lease to be taken", func() error {
		lease := r.lease()
		lease.Spec.HolderIdentity = ptr.To("thief")
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](3600)
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		_, err := env.Kube.CoordinationV1().Leases(r.ns.Name).Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	taken := time.Now()
	if code := r.first.WaitForEnd(); code != 1 {
		t.Errorf("the leader ended with exit code %d, want 1", code)
	}
	ended := time.Now()
	t.Logf("the leader ended %s after its lease was taken", ended.Sub(taken).Round(time.Millisecond))
	if log := r.first.Log(); !strings.Contains(log, "lost the lease: another replica may be leading") {
		t.Error("the log doesn't say why the leader ended")
	}
	if holder := *r.lease().Spec.HolderIdentity; holder != "thief" {
		t.Errorf("the lease is held by %q, want it left to the one that took it", holder)
	}

	// What it was told before the deadline it may have done; nothing after it.
	deadline := taken.Add(renewDeadline + retryPeriod)
	for _, w := range withoutLease(r.ns.SettledWrites()) {
		if w.Time.After(deadline) {
			t.Errorf("the deposed leader wrote %s %s after its deadline", w.Kind(), w.Time.Sub(deadline))
		}
	}
	if ended.After(deadline.Add(2 * time.Second)) {
		t.Errorf("the deposed leader ended %s after its deadline", ended.Sub(deadline))
	}
}
