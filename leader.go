package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"warmpool.dev/controller/pkg/freshness"
)

// leaderElectionOptions are the part of the command line that concerns the lease.
type leaderElectionOptions struct {
	enabled       bool
	namespace     string
	leaseDuration time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration
}

func (o *leaderElectionOptions) addFlags(flags *flag.FlagSet) {
	flags.BoolVar(&o.enabled, "leader-elect", true, "Take a Lease before acting, so that of several replicas one acts.")
	flags.StringVar(&o.namespace, "leader-elect-namespace", "", "Namespace of the Lease "+component+". Empty: that of the Pod that this runs in; outside a cluster, default.")
	flags.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long a leader that is silent is left its Lease.")
	flags.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "After how long without a renewal a leader gives up. Less than the lease duration.")
	flags.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "Time between two tries to take or to renew the Lease.")
}

func (o *leaderElectionOptions) validate(writeTimeout time.Duration) error {
	if !o.enabled {
		return nil
	}
	if o.retryPeriod <= 0 || o.renewDeadline <= o.retryPeriod || o.leaseDuration <= o.renewDeadline {
		return fmt.Errorf("--leader-elect-retry-period (%s), --leader-elect-renew-deadline (%s) and --leader-elect-lease-duration (%s): give each more than the one before",
			o.retryPeriod, o.renewDeadline, o.leaseDuration)
	}
	// A leader sends no write that could land after its lease; with a lease that is
	// shorter than a write it could send none.
	if o.leaseDuration-o.retryPeriod <= writeTimeout+2*time.Second {
		return fmt.Errorf("--leader-elect-lease-duration (%s) less --leader-elect-retry-period (%s) has to be more than --write-timeout (%s) and 2s: raise the first, or lower the last",
			o.leaseDuration, o.retryPeriod, writeTimeout)
	}
	return nil
}

// newTerm returns the lock to lead with, which knows how long a leader may write; nil
// if there is no election. The lease has a client of its own: its renewal must not wait
// in line behind a burst of hand-outs.
func (o *leaderElectionOptions) newTerm(config *rest.Config, writeTimeout time.Duration) (*freshness.Term, error) {
	if !o.enabled {
		return nil, nil
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the lease: %w", err)
	}
	lock, err := newLock(*o, kube)
	if err != nil {
		return nil, err
	}
	return freshness.NewTerm(lock, writeTimeout, nil), nil
}

// errLostLease ends the process: a leader that couldn't renew must not act any more,
// and the surest way not to is to be gone.
var errLostLease = errors.New("lost the lease: another replica may be leading")

// lead calls run when this process has the lease, with a context that ends with ctx
// or with the lease, whichever is first. When run returns, so does lead. At a normal
// end the lease is given up after run has returned, when nothing is written any more,
// so that the next leader needn't wait for it to expire. client-go's own
// ReleaseOnCancel isn't used: after a failed renewal it releases before the leader has
// stopped, and it can release another leader's lease (client-go 0.37,
// leaderelection.go:218, 309-348).
// Without a lock there is no election, and this process leads at once.
func lead(ctx context.Context, o leaderElectionOptions, lock resourcelock.Interface, run func(context.Context) error) error {
	if !o.enabled {
		return run(ctx)
	}
	if err := checkLock(ctx, o, lock); err != nil {
		return err
	}
	// The lease is renewed until run has returned, thus longer than ctx.
	election, stopElection := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElection()
	var leading atomic.Bool
	finished := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          component,
		Lock:          lock,
		LeaseDuration: o.leaseDuration,
		RenewDeadline: o.renewDeadline,
		RetryPeriod:   o.retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				leading.Store(true)
				term, cancel := context.WithCancel(held)
				defer context.AfterFunc(ctx, cancel)()
				finished <- run(term)
				// An election that is stopped is a normal end; this one isn't, if
				// the lease was lost before.
				if held.Err() == nil {
					stopElection()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up leader election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if !leading.Load() {
			stopElection()
		}
	})()
	klog.FromContext(ctx).Info("Waiting for the lease", "lease", lock.Describe(), "identity", lock.Identity())
	elector.Run(election)

	if election.Err() == nil {
		return errLostLease
	}
	if !leading.Load() && !elector.IsLeader() {
		return nil
	}
	// It leads, or is about to: it may have got the lease at the very end.
	err = <-finished
	return errors.Join(err, release(context.WithoutCancel(ctx), o, lock))
}

// newLock returns the lock on the lease.
func newLock(o leaderElectionOptions, kube kubernetes.Interface) (resourcelock.Interface, error) {
	namespace := o.namespace
	if namespace == "" {
		namespace = ownNamespace()
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the name of this host: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: component},
		Client:     kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())},
	}, nil
}

// checkLock looks whether the lease may be read: an election that is forbidden would go
// on for ever in silence.
func checkLock(ctx context.Context, o leaderElectionOptions, lock resourcelock.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, o.renewDeadline)
	defer cancel()
	_, _, err := lock.Get(ctx)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("read the lease %s: %w: grant it with 'kubectl apply -f artifacts/deploy' and give --leader-elect-namespace=warmpool-system, or give --leader-elect=false if no second replica runs", lock.Describe(), err)
	default:
		return fmt.Errorf("read the lease %s: %w: check that the API server can be reached", lock.Describe(), err)
	}
}

// release gives the lease up, if it is still this process's. The update carries the
// resourceVersion of the read, so that it can't take the lease from another.
func release(ctx context.Context, o leaderElectionOptions, lock resourcelock.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, o.renewDeadline)
	defer cancel()
	for {
		record, _, err := lock.Get(ctx)
		if err != nil {
			return fmt.Errorf("release the lease %s: %w", lock.Describe(), err)
		}
		if record.HolderIdentity != lock.Identity() {
			return nil
		}
		record.HolderIdentity = ""
		record.LeaseDurationSeconds = 1 // 0 is not valid
		err = lock.Update(ctx, *record)
		switch {
		case apierrors.IsConflict(err):
			// A renewal of this process's own, which was on its way when the election
			// was stopped, came between the two.
			continue
		case err != nil:
			return fmt.Errorf("release the lease %s: %w", lock.Describe(), err)
		}
		klog.FromContext(ctx).Info("Released the lease", "lease", lock.Describe())
		return nil
	}
}

// ownNamespace is the namespace of the Pod that this process runs in, or default.
func ownNamespace() string {
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return metav1.NamespaceDefault
	}
	return strings.TrimSpace(string(namespace))
}
