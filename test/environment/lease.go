package environment

// The right to a lease in a test's namespace.

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warmpool.dev/controller/hack/controlplane"
)

// The names that artifacts/deploy gives.
const (
	leaseName       = "warmpool-controller"
	leaseRole       = "warmpool-controller-lease"
	systemNamespace = "warmpool-system"
)

// GrantLease gives the controller the same right to a lease in this namespace that
// artifacts/deploy gives it in its own, so that tests of leader election can run side
// by side. It returns the name of the lease.
func (n *Namespace) GrantLease() string {
	n.t.Helper()
	roles := n.env.Kube.RbacV1()
	role, err := roles.Roles(systemNamespace).Get(n.t.Context(), leaseRole, metav1.GetOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	here := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: leaseRole}, Rules: role.Rules}
	if _, err := roles.Roles(n.Name).Create(n.t.Context(), here, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: leaseRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: leaseRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: controlplane.Controller}},
	}
	if _, err := roles.RoleBindings(n.Name).Create(n.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	return leaseName
}
